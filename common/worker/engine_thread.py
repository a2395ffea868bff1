"""The one thread that torch lives on, and the only crossing between it and the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from common.engine.engine import Engine
from common.engine.results import Load, StepResult
from common.kv.cache_event import CacheEvent
from common.request import LegKey
from common.thread_slice import compute_at_length

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Work that waits for blocks which a transfer holds is looked at again after this.
BLOCKED_WAIT_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What the event loop is told after each step, and after each change between steps.

    `tallies` are the calls of each source that `load` takes into account; `upcoming` are waiting legs to hand over
    that the next step is likely to begin.
    """

    result: StepResult
    cache_events: list[CacheEvent]
    load: Load
    tallies: Mapping[str, int]
    upcoming: tuple[LegKey, ...] = ()


@dataclass(slots=True)
class _Call(Generic[T]):
    run: Callable[[Engine], T]
    future: asyncio.Future[T]
    source: str | None = None
    value: T | None = None
    error: BaseException | None = None


class EngineThread:
    """Runs steps while there is work. Calls run between steps, in the order in which they were made.

    `on_report`, `on_crash` and `on_load` are called on the event loop; `on_load` with what the calls before a step have
    changed: their results don't wait for the step, which may take seconds. A step that raises past the engine's own
    isolation is a bug that leaves its books in doubt: the thread stops, and the process must end.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        on_report: Callable[[StepReport], None],
        on_crash: Callable[[BaseException], None],
        on_load: Callable[[Load, Mapping[str, int]], None] = lambda load, tallies: None,
    ) -> None:
        self._engine = engine
        self._on_report, self._on_crash, self._on_load = on_report, on_crash, on_load
        self._loop = asyncio.get_running_loop()
        self._wakeup = threading.Condition()
        self._calls: deque[_Call[object]] = deque()
        self._tallies: dict[str, int] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """After the step that runs. Calls that have not run are cancelled."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        await asyncio.to_thread(self._thread.join)

    def call(self, run: Callable[[Engine], T], *, source: str | None = None) -> asyncio.Future[T]:
        """Queues a call, at once; the future brings its result or its error. Calls of a source are counted."""
        call = _Call(run, self._loop.create_future(), source)
        with self._wakeup:
            self._calls.append(call)
            self._wakeup.notify()
        return call.future

    def post(self, run: Callable[[Engine], object]) -> None:
        """Queues a call whose result nobody needs; an error of it is logged."""
        self.call(run).add_done_callback(_log_error)

    def forget(self, source: str) -> None:
        """No more calls of this source will come."""
        self.post(lambda engine: self._tallies.pop(source, None))

    def _run(self) -> None:
        compute_at_length()
        try:
            while self._wait_for_work():
                calls = self._take_calls()
                for call in calls:
                    _carry_out(call, self._engine)
                    if call.source is not None:
                        self._tallies[call.source] = self._tallies.get(call.source, 0) + 1
                if calls:
                    self._loop.call_soon_threadsafe(self._answer, calls, self._engine.load(), dict(self._tallies))
                result = self._engine.step()
                self._report(result)
                if self._engine.has_work() and not result.num_scheduled_tokens:
                    self._pause()
        except BaseException as error:
            logger.critical("the engine thread crashed", exc_info=error)
            self._loop.call_soon_threadsafe(self._on_crash, error)

    def _wait_for_work(self) -> bool:
        with self._wakeup:
            while not self._stopping and not self._calls and not self._engine.has_work():
                self._wakeup.wait()
            return not self._stopping

    def _pause(self) -> None:
        with self._wakeup:
            if not self._calls and not self._stopping:
                self._wakeup.wait(BLOCKED_WAIT_S)

    def _take_calls(self) -> list[_Call[object]]:
        with self._wakeup:
            calls = list(self._calls)
            self._calls.clear()
            return calls

    def _report(self, result: StepResult) -> None:
        report = StepReport(
            result=result,
            cache_events=self._engine.drain_cache_events(),
            load=self._engine.load(),
            tallies=dict(self._tallies),
            upcoming=self._engine.upcoming_hand_overs(),
        )
        self._loop.call_soon_threadsafe(self._deliver, report)

    def _answer(self, calls: list[_Call[object]], load: Load, tallies: Mapping[str, int]) -> None:
        """Before the step's report: who reserved must know of it before tokens come."""
        self._on_load(load, tallies)
        for call in calls:
            if call.future.cancelled():
                continue
            if call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.value)

    def _deliver(self, report: StepReport) -> None:
        try:
            self._on_report(report)
        except Exception as error:
            # What one request's data can do is kept to it further down: this report has reached only some.
            logger.critical("a step's report can't be taken in", exc_info=error)
            self._on_crash(error)


def _carry_out(call: _Call[object], engine: Engine) -> None:
    try:
        call.value = call.run(engine)
    except Exception as error:
        call.error = error


def _log_error(future: asyncio.Future[object]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        logger.error("a call to the engine failed", exc_info=error)
