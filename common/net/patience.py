"""A limit on many short waits, for the price of a look at the clock each."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Patience:
    """`with patience:` around an await raises TimeoutError when it takes longer than `limit_s`; None: it may.

    As asyncio.timeout, for waits that come thousands a second and hardly ever take so long: the event loop's timer is
    set once per limit and not once per wait, which cost 4 µs of each token. One wait at a time; `close` at the end.
    """

    def __init__(self, limit_s: float | None) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._began_s: float | None = None  # by the loop's clock; None: nobody waits
        self._task: asyncio.Task[object] | None = None
        self._num_cancelling = 0
        self._expired = False

    def __enter__(self) -> None:
        if self._limit_s is None:
            return
        self._task = asyncio.current_task()
        assert self._task is not None
        self._num_cancelling = self._task.cancelling()
        self._expired = False
        self._began_s = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._began_s + self._limit_s, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._began_s = None
        if not self._expired:
            return
        assert self._task is not None
        if self._task.uncancel() <= self._num_cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._began_s is None:
            return  # the next wait sets it again
        assert self._limit_s is not None and self._task is not None
        due_s = self._began_s + self._limit_s
        if self._loop.time() < due_s:
            self._timer = self._loop.call_at(due_s, self._look)
        else:
            self._expired = True
            self._task.cancel()
