"""How many requests are inside, who may still enter, and how the last ones leave."""

from __future__ import annotations

import asyncio
from typing import Any

from common.errors import DrainingError, OverloadedError

# Errors on their way to the callers are worth so many seconds at the very end.
LEAVING_S = 2.0


class Gate:
    """Owned by the event loop. Every `enter` that does not raise is followed by one `leave`."""

    def __init__(self, max_num_requests: int) -> None:
        self._max_num_requests = max_num_requests
        self._tasks: set[asyncio.Task[Any]] = set()
        self._left = asyncio.Event()
        self._cut = False
        self.num_inside = 0
        self.shut = asyncio.Event()

    def enter(self, *, resumed: bool) -> None:
        """Raises DrainingError when the gate is shut, OverloadedError when too many are inside."""
        if self.shut.is_set():
            raise DrainingError("this router is draining: ask another one")
        # Answers of a router that died have been paid for: they find room beside as many as this one has itself.
        limit = self._max_num_requests * (2 if resumed else 1)
        if self.num_inside >= limit:
            raise OverloadedError(f"{limit} requests are active, which is this router's limit")
        self.num_inside += 1

    def leave(self) -> None:
        self.num_inside -= 1
        self._left.set()

    def watch(self, task: asyncio.Task[Any]) -> None:
        """The task that brings a request's answer; `check_cut` tells, when it was cancelled, whether by this gate."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def check_cut(self) -> None:
        """Raises DrainingError when the time to leave is over."""
        if self._cut:
            raise DrainingError("this router has drained for as long as it may: go on at another one")

    async def drain(self, timeout_s: float) -> bool:
        """Nobody enters any more; those inside have `timeout_s` to leave, and are sent away then. Whether all left
        by themselves."""
        self.shut.set()
        all_left = await self._wait_empty(timeout_s)
        self._cut = True
        for task in self._tasks:
            task.cancel()
        await self._wait_empty(LEAVING_S)
        return all_left

    async def _wait_empty(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while self.num_inside:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            return False
        return True
