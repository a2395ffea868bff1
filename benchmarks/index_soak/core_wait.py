"""How long a process has waited for a core: what other programs on the machine take from it."""

from __future__ import annotations

import os


class CoreWait:
    """Of one process's main thread, by Linux's count; 0 where there is none. Owner: whoever asks."""

    def __init__(self, pid: int) -> None:
        try:
            self._file: int | None = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY)
        except OSError:
            self._file = None

    def seconds(self) -> float:
        """Since the process started."""
        if self._file is None:
            return 0.0
        return int(os.pread(self._file, 100, 0).split()[1]) / 1e9
