"""Where requests wait when every worker has refused: most urgent first, then by arrival."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from common.errors import OverloadedError

# A refusal that no load report cancels (a worker came back, a reservation expired) is tried again after this.
RETRY_S = 0.25
# Who was refused rests so long: a busy fleet tells of its load hundreds of times a second, mostly of as little room.
REST_S = 0.02


class WaitingRoom:
    """Only the head tries again, each time that a worker's load moves. Owned by the event loop; bounded."""

    def __init__(self, changed: asyncio.Event, capacity: int) -> None:
        self._changed = changed
        self._capacity = capacity
        self._heap: list[tuple[int, float, int]] = []
        self._left: set[tuple[int, float, int]] = set()
        self._numbers = itertools.count()
        self._head_moved = asyncio.Event()

    def __len__(self) -> int:
        return len(self._heap) - len(self._left)

    @asynccontextmanager
    async def place(self, priority: int, arrival_s: float, *, begun: bool = False) -> AsyncIterator[Place]:
        """Raises OverloadedError when the room is full, but not for an answer that has begun."""
        if len(self) >= self._capacity and not begun:
            raise OverloadedError("every worker is busy and the router's queue is full")
        entry = (priority, arrival_s, next(self._numbers))
        heapq.heappush(self._heap, entry)
        try:
            yield Place(self, entry)
        finally:
            self._leave(entry)

    async def wait_turn(self, entry: tuple[int, float, int], not_before_s: float) -> None:
        """Returns when the entry is at the head and something may have changed; not before a monotonic time."""
        while True:
            while self._heap[0] != entry:
                self._head_moved.clear()
                await self._head_moved.wait()
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), RETRY_S)
            await asyncio.sleep(not_before_s - time.monotonic())
            if self._heap[0] == entry:
                return

    def _leave(self, entry: tuple[int, float, int]) -> None:
        self._left.add(entry)
        while self._heap and self._heap[0] in self._left:
            self._left.remove(heapq.heappop(self._heap))
        self._head_moved.set()


class Place:
    """One request's place in the room."""

    def __init__(self, room: WaitingRoom, entry: tuple[int, float, int]) -> None:
        self._room = room
        self._entry = entry

    async def wait_turn(self, not_before_s: float = 0.0) -> None:
        await self._room.wait_turn(self._entry, not_before_s)
