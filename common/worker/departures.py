"""The transfers out of a worker: fed by its engine's reports, ended with their legs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from common.engine.results import BlocksComputed
from common.kv.sender import KVSender
from common.request import Leg, LegKey
from common.transport.channels import PeerChannels
from common.transport.push_target import PushTarget
from common.transport.sink_control import SinkControl
from common.worker.departure import Departure
from common.worker.engine_thread import StepReport
from common.worker.map_timing import MapTiming
from common.worker.worker import Worker
from protos import worker_pb2

CLOSE_S = 5.0

OpenSender = Callable[[PushTarget], KVSender]


class Lease(NamedTuple):
    """The engine's lease of blocks that a transfer reads: of an attempt's choices; none named: all."""

    key: LegKey
    choice_indices: tuple[int, ...] = ()


class Departures:
    """A ReportListener. Owned by the event loop. When a departure ends, its leg's lease is released.

    Whoever opens one has submitted its leg for a hand-over, or holds its blocks by a lease already.
    """

    def __init__(
        self, worker: Worker, channels: PeerChannels, open_sender: OpenSender, timing: MapTiming, *, lease_s: float
    ) -> None:
        self._worker = worker
        self._control = SinkControl(channels)
        self._open_sender = open_sender
        self._timing = timing
        self._lease_s = lease_s
        self._open: dict[LegKey, Departure] = {}
        self._leases: dict[LegKey, Lease] = {}
        self._asking: dict[LegKey, asyncio.TimerHandle] = {}
        worker.add_listener(self)

    @property
    def num_open(self) -> int:
        return len(self._open)

    def __contains__(self, key: LegKey) -> bool:
        return key in self._open

    def open(self, leg: Leg, target: PushTarget, lease: Lease | None = None) -> Departure:
        """A transfer that begins when blocks are computed. `lease` is released at its end; None: the leg's own."""
        key = leg.key
        self._leases[key] = lease or Lease(key)
        departure = self._open[key] = Departure(
            key,
            leg.choice_indices,
            target,
            self._control,
            self._open_sender,
            self._on_end,
            lease_s=self._lease_s,
        )
        if target.maps is None:
            num_tokens = len(leg.prompt_token_ids) + len(leg.output_token_ids)
            self._timing.watch(key, num_tokens, leg.expected_cached_tokens)
        return departure

    def give_up(self, key: LegKey, reason: str) -> None:
        """Idempotent."""
        departure = self._open.get(key)
        if departure is not None:
            departure.give_up(reason)

    def on_report(self, report: StepReport) -> None:
        result = report.result
        for blocks in result.computed:
            self._take_blocks(blocks)
        for key, wait_s in self._timing.due(report):
            self._ask_map_in(key, wait_s)
        for done in result.handed_over:
            departure = self._open.get(LegKey(done.request_id, done.attempt))
            if departure is not None:
                departure.handed_over(done)
        for output in result.tokens:
            if output.finish_reason is not None:
                self._choices_ended(LegKey(output.request_id, output.attempt), (output.choice_index,))
        for end in result.ends:
            self._choices_ended(LegKey(end.request_id, end.attempt), end.choice_indices)

    def on_given_back(self, key: LegKey) -> None:
        self.give_up(key, "given back before it began")

    async def watch_sinks(self) -> None:
        """Gives up sinks that are silent. Until cancelled."""
        while True:
            await asyncio.sleep(self._lease_s / 8)
            for departure in list(self._open.values()):
                departure.expire()

    async def close(self) -> None:
        """Lets what is under way finish, for a while, and gives up the others."""
        departures = list(self._open.values())
        waits = [asyncio.ensure_future(departure.ended.wait()) for departure in departures]
        if waits:
            await asyncio.wait(waits, timeout=CLOSE_S)
        for departure in departures:
            departure.give_up("the worker stops")
        await asyncio.gather(*waits)

    def _take_blocks(self, blocks: BlocksComputed) -> None:
        key = LegKey(blocks.request_id, blocks.attempt)
        departure = self._open.get(key)
        if departure is not None:
            departure.computed(blocks)
            self._timing.computed(key, blocks)

    def _ask_map_in(self, key: LegKey, wait_s: float) -> None:
        """In place of what an earlier report said."""
        self._stop_timer(key)
        if wait_s:
            self._asking[key] = asyncio.get_running_loop().call_later(wait_s, self._ask_map, key)
        else:
            self._ask_map(key)

    def _ask_map(self, key: LegKey) -> None:
        self._stop_timer(key)
        self._timing.forget(key)
        self._open[key].ask_map()

    def _stop_timer(self, key: LegKey) -> None:
        timer = self._asking.pop(key, None)
        if timer is not None:
            timer.cancel()

    def _choices_ended(self, key: LegKey, choice_indices: tuple[int, ...]) -> None:
        departure = self._open.get(key)
        if departure is not None:
            departure.choices_ended(choice_indices)

    def _on_end(self, departure: Departure, end: worker_pb2.LegEnd | None) -> None:
        key = departure.key
        del self._open[key]
        self._timing.forget(key)
        self._stop_timer(key)
        counters = self._worker.counters
        counters.sent_bytes += departure.num_sent_bytes
        counters.sent_blocks += departure.num_sent_blocks
        if end is None or end.reason != worker_pb2.LEG_END_REASON_HANDED_OVER:
            self._worker.cancel(key)
        else:
            self._timing.moved(departure.num_sent_bytes, departure.push_s)
        lease = self._leases.pop(key)
        self._worker.engine.post(
            lambda engine: engine.release_lease(lease.key.request_id, lease.key.attempt, lease.choice_indices)
        )
        if end is None:
            self._worker.hub.disown(key)  # its router has been told of each choice, or has given it up
        else:
            self._worker.hub.send_end(key, end)
