"""A task that lives as long as its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class BackgroundTask:
    """Owner: whoever starts it; one event loop. A failure of the task is raised by `stop()`."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[None, None, None], name: str) -> None:
        assert self._task is None, "already started"
        self._task = asyncio.create_task(work, name=name)

    async def stop(self) -> bool:
        """Returns when the task has ended. False when there was none."""
        task, self._task = self._task, None
        if task is None:
            return False
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        return True
