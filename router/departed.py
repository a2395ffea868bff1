"""Workers that this router had and has no more, for a while: an operator asks where one has gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from router.worker_info import WorkerInfo

REMEMBER_S = 600.0
MAX_REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DepartedWorker:
    """`removed`: it was told to go, and said so; else it was lost without a word."""

    info: WorkerInfo
    removed: bool
    departed_s: float  # monotonic


class DepartedWorkers:
    """Owned by the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._departed: dict[str, DepartedWorker] = {}

    def add(self, info: WorkerInfo, *, removed: bool) -> None:
        self._departed.pop(info.worker_id, None)
        while len(self._departed) >= MAX_REMEMBERED:
            del self._departed[next(iter(self._departed))]
        self._departed[info.worker_id] = DepartedWorker(info=info, removed=removed, departed_s=self._clock())

    def forget(self, worker_id: str) -> None:
        """It is back. Idempotent."""
        self._departed.pop(worker_id, None)

    def all(self) -> list[DepartedWorker]:
        """Of the last ten minutes, the longest gone first."""
        since_s = self._clock() - REMEMBER_S
        self._departed = {key: one for key, one in self._departed.items() if one.departed_s > since_s}
        return list(self._departed.values())
