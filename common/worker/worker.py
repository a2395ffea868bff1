"""What every worker does with its engine, whatever its role: takes legs, reports steps, publishes its cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from common.engine.engine import Engine
from common.errors import OverloadedError, SlipstreamError
from common.kv.cache_event import CacheEvent
from common.request import Leg
from common.transport.transfer_counters import TransferCounters
from common.worker.attach_hub import AttachHub, LegKey
from common.worker.attach_session import rejection
from common.worker.engine_thread import EngineThread, StepReport
from common.worker.step_codec import encode_load
from protos import worker_pb2

logger = logging.getLogger(__name__)

LOAD_INTERVAL_S = 1.0


class ReportListener(Protocol):
    """A role's own part in what a step brought, before the routers are told."""

    def on_report(self, report: StepReport) -> None: ...


class Worker:
    """Owned by the event loop. `publish` takes cache events to the index."""

    def __init__(
        self,
        engine: Engine,
        *,
        publish: Callable[[list[CacheEvent]], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        self.hub = AttachHub()
        self.counters = TransferCounters()
        self.engine = EngineThread(engine, on_report=self._on_report, on_crash=on_crash)
        self.draining = False
        self._publish = publish
        self._listeners: list[ReportListener] = []
        self._load = engine.load()
        self._tallies: Mapping[str, int] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def add_listener(self, listener: ReportListener) -> None:
        self._listeners.append(listener)

    def load_report(self) -> worker_pb2.LoadReport:
        report = encode_load(self._load, self.counters)
        report.num_routers = len(self.hub.sources)
        return report

    def submit(self, leg: Leg, *, hand_over: bool, on_refused: Callable[[], None] | None = None) -> None:
        """Queues a leg whose router the hub knows. Raises OverloadedError when draining.

        When the engine refuses it, its router is told, and `on_refused` is called.
        """
        if self.draining:
            raise OverloadedError("this worker is draining")
        key = LegKey(leg.request_id, leg.attempt)

        def refused(future: asyncio.Future[None]) -> None:
            if future.cancelled() or (error := future.exception()) is None:
                return
            if not isinstance(error, SlipstreamError):
                error = SlipstreamError(f"{type(error).__name__}: {error}")
            self.hub.send_end(key, rejection(key, error))
            if on_refused is not None:
                on_refused()

        submitted = self.engine.call(
            lambda engine: engine.submit(leg, hand_over=hand_over), source=self.hub.source_of(key)
        )
        submitted.add_done_callback(refused)

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...] = ()) -> None:
        self.engine.post(lambda engine: engine.cancel(key.request_id, key.attempt, choice_indices))

    async def report_load(self) -> None:
        """Tells routers the load of an idle worker too. Until cancelled."""
        while True:
            await asyncio.sleep(LOAD_INTERVAL_S)
            self.hub.deliver((), (), self.load_report(), self._tallies)

    async def wait_idle(self, timeout_s: float) -> bool:
        """Whether all work was done within the time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    def _on_report(self, report: StepReport) -> None:
        load = self._load = report.load
        self._tallies = report.tallies
        for gone in report.tallies.keys() - self.hub.sources:
            self.engine.forget(gone)
        if load.num_running or load.num_waiting or load.num_swapped or load.num_reservations:
            self._idle.clear()
        else:
            self._idle.set()
        if report.cache_events:
            self._publish(report.cache_events)
        for listener in self._listeners:
            listener.on_report(report)
        result = report.result
        for failed in self.hub.deliver(result.tokens, result.ends, self.load_report(), report.tallies):
            self.cancel(LegKey(failed.request_id, failed.attempt), failed.choice_indices)
