"""Leaving without losing anything: a worker that drains takes no more work, and gives away what it can."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from common.worker.worker import Worker

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 0.02
# What its engine has not reported yet, such as a commit on its way, shows in so many looks.
NUM_LOOKS = 3


class Drain:
    """Owned by the event loop. `announce` tells everyone whether the worker drains, `is_idle` is the role's own part.

    What waits goes back to its routers at once. They ask for what decodes when another worker has room for it, and
    the rest is finished here.
    """

    def __init__(self, worker: Worker, announce: Callable[[bool], None], is_idle: Callable[[], bool]) -> None:
        self._worker = worker
        self._announce = announce
        self._is_idle = is_idle
        self._giving_back: asyncio.Task[None] | None = None

    @property
    def num_left(self) -> int:
        """Requests that are still to be finished or moved, 0 when the worker may stop."""
        return max(self._worker.num_left, self._worker.hub.num_legs, 0 if self._is_idle() else 1)

    def begin(self) -> None:
        """Idempotent."""
        if self._worker.draining:
            return
        logger.info("draining: %d requests are left", self.num_left)
        self._worker.draining = True
        self._announce(True)
        self._giving_back = asyncio.create_task(self._worker.give_back_waiting())

    def undo(self) -> None:
        """Takes work again. Idempotent."""
        if self._worker.draining:
            self._worker.draining = False
            self._announce(False)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Whether nothing was left within the time."""
        ends_s = time.monotonic() + timeout_s
        num_idle_looks = 0
        while num_idle_looks < NUM_LOOKS:
            if time.monotonic() > ends_s:
                return False
            num_idle_looks = 0 if self.num_left else num_idle_looks + 1
            await asyncio.sleep(LOOK_INTERVAL_S)
        return True
