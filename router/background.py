"""Calls that nobody waits for, such as clean-up that outlives its request. Tracked, logged, and awaited at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import grpc

logger = logging.getLogger(__name__)


class Background:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(self._run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Waits for what is under way; each has its own deadline."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except grpc.aio.AioRpcError as error:
            # The peer is gone, and what it held with it.
            logger.debug("in the background: %s", error.details())
