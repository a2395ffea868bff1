"""Which cores a process may use, for benchmarks that say what belongs to whom."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def pin(pid: int, cores: Iterable[int]) -> None:
    """All threads that the process has now, and those that they start."""
    cores = set(cores)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), cores)


def own_cores() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0))
