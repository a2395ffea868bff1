"""Simulated time: what happens next."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventQueue:
    """Calls in the order of their times; at the same time, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._number = 0

    def at(self, time_s: float, call: Callable[..., None], *arguments: Any) -> None:
        """Not before now."""
        self._number += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._number, call, arguments))

    def run(self) -> None:
        """Until nothing is left to happen."""
        heap = self._heap
        while heap:
            self.now_s, _, call, arguments = heapq.heappop(heap)
            call(*arguments)

    def stop(self) -> None:
        """Nothing else will happen."""
        self._heap.clear()
