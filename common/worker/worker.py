"""What every worker does with its engine, whatever its role: takes legs, reports steps, publishes its cache."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from common.engine.engine import Engine
from common.engine.results import Load
from common.errors import OverloadedError, SlipstreamError
from common.kv.cache_event import CacheEvent
from common.net.silence import speaking_interval_s
from common.request import Leg, LegKey
from common.transport.transfer_counters import TransferCounters
from common.worker.attach_hub import AttachHub
from common.worker.attach_session import rejection
from common.worker.engine_thread import EngineThread, StepReport
from common.worker.step_codec import encode_load
from protos import worker_pb2

logger = logging.getLogger(__name__)


class ReportListener(Protocol):
    """A role's own part in what a step brought, when the routers have been told."""

    def on_report(self, report: StepReport) -> None: ...

    def on_given_back(self, key: LegKey) -> None:
        """A leg that had not begun has left the queue, and its router knows."""
        ...


class Worker:
    """Owned by the event loop. `publish` takes cache events to the index, whose state `index_state` tells."""

    def __init__(
        self,
        engine: Engine,
        *,
        publish: Callable[[list[CacheEvent]], None],
        on_crash: Callable[[BaseException], None],
        index_state: Callable[[], worker_pb2.IndexState | None] = lambda: None,
    ) -> None:
        self.hub = AttachHub()
        self.counters = TransferCounters()
        self.engine = EngineThread(engine, on_report=self._on_report, on_crash=on_crash, on_load=self._on_load)
        self.draining = False
        self._publish = publish
        self._index_state = index_state
        self._known_index_state: worker_pb2.IndexState | None = None
        self._listeners: list[ReportListener] = []
        self._load = engine.load()
        self._tallies: Mapping[str, int] = {}

    def add_listener(self, listener: ReportListener) -> None:
        self._listeners.append(listener)

    def load_report(self) -> worker_pb2.LoadReport:
        report = encode_load(self._load, self.counters)
        report.num_routers = len(self.hub.sources)
        if self._known_index_state is not None:
            report.index.CopyFrom(self._known_index_state)
        return report

    def submit(self, leg: Leg, *, hand_over: bool, on_refused: Callable[[], None] | None = None) -> None:
        """Queues a leg whose router the hub knows. Raises OverloadedError when draining.

        When the engine refuses it, its router is told, and `on_refused` is called.
        """
        if self.draining:
            raise OverloadedError("this worker is draining")
        key = leg.key

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

    async def report_load(self, lease_s: float) -> None:
        """Tells routers the load of an idle worker too, often enough not to count as lost. Until cancelled."""
        while True:
            self._known_index_state = self._index_state()  # asked now and then: there is a report with every step
            await asyncio.sleep(speaking_interval_s(lease_s))
            self.hub.deliver((), (), self.load_report(), self._tallies)

    @property
    def num_left(self) -> int:
        """What the engine has not finished: requests in queue and batch or swapped out, and reservations."""
        load = self._load
        return load.num_running + load.num_waiting + load.num_swapped + load.num_reservations

    async def give_back_waiting(self) -> None:
        """What has not begun goes back to its routers, which have it computed elsewhere."""
        for leg in await self.engine.call(lambda engine: engine.give_back_waiting()):
            self.hub.send_end(leg.key, rejection(leg.key, OverloadedError("this worker is draining")))
            for listener in self._listeners:
                listener.on_given_back(leg.key)

    def _on_load(self, load: Load, tallies: Mapping[str, int]) -> None:
        self._load = load
        self._tallies = tallies

    def _on_report(self, report: StepReport) -> None:
        self._load = report.load
        self._tallies = report.tallies
        for gone in report.tallies.keys() - self.hub.sources:
            self.engine.forget(gone)
        if report.cache_events:
            self._publish(report.cache_events)
        result = report.result
        failed = self.hub.deliver(result.tokens, result.ends, self.load_report(), report.tallies)
        # Told first: a transfer that ends with its leg's last choice has the hub forget the leg.
        for listener in self._listeners:
            listener.on_report(report)
        for end in failed:
            self.cancel(LegKey(end.request_id, end.attempt), end.choice_indices)
