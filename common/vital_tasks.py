"""Tasks that a process can't do without: it must end when one of them dies, instead of serving half."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class VitalTasks:
    """Owned by the event loop. `on_death` gets the error of a task that raised."""

    def __init__(self, on_death: Callable[[BaseException], None]) -> None:
        self._on_death = on_death
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.critical("the task %r died", task.get_name(), exc_info=error)
            self._on_death(error)
