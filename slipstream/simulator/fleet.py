"""The simulated workers, who dies and comes back among them, and how their load reports reach the routers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.config import Role
from common.request import WorkerId
from router.worker_info import WorkerInfo, WorkerLoad
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.decode_worker import DecodeEvents, SimulatedDecodeWorker
from slipstream.simulator.events import EventQueue
from slipstream.simulator.job import Job
from slipstream.simulator.prefill_worker import PrefillEvents, SimulatedPrefillWorker
from slipstream.simulator.prefix_store import PrefixStore
from slipstream.simulator.profile import Profile
from slipstream.simulator.simulated_router import SimulatedRouter
from slipstream.simulator.trace import TraceRequest, num_blocks_of

TICK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """`cache_blocks` per prefill worker; None: no limit. Decode workers have what the profile's memory gives."""

    num_prefill: int
    num_decode: int
    cache_blocks: int | None
    block_size: int
    report_s: float = 0.001
    report_submits: bool = False


Worker = SimulatedPrefillWorker | SimulatedDecodeWorker


class SimulatedFleet:
    """Every worker of the simulation. `ended_lives` of prefill workers are kept, since their work counts."""

    def __init__(
        self,
        plan: FleetPlan,
        profile: Profile,
        events: EventQueue,
        store: PrefixStore,
        routers: Sequence[SimulatedRouter],
    ) -> None:
        self._plan = plan
        self._profile = profile
        self._events = events
        self._store = store
        self._routers = routers
        self._prefill: dict[WorkerId, SimulatedPrefillWorker] = {}
        self._decode: dict[WorkerId, SimulatedDecodeWorker] = {}
        self._num_decode_blocks = max(1, profile.kv_capacity_tokens // plan.block_size)
        self.ended_lives: list[SimulatedPrefillWorker] = []

    def start(self, prefill: PrefillEvents, decode: DecodeEvents) -> None:
        """Every worker's first life."""
        self._prefill_events, self._decode_events = prefill, decode
        for number in range(self._plan.num_prefill):
            self.start_prefill(WorkerId(f"prefill-{number}"), 1)
        for number in range(self._plan.num_decode):
            self._start_decode(WorkerId(f"decode-{number}"))

    def prefill(self, worker_id: WorkerId) -> SimulatedPrefillWorker:
        return self._prefill[worker_id]

    def decode(self, worker_id: WorkerId) -> SimulatedDecodeWorker:
        return self._decode[worker_id]

    @property
    def prefill_workers(self) -> list[SimulatedPrefillWorker]:
        return list(self._prefill.values())

    @property
    def decode_workers(self) -> list[SimulatedDecodeWorker]:
        return list(self._decode.values())

    def can_ever_hold(self, request: TraceRequest) -> bool:
        """Whether an empty worker of each role has room for it."""
        num_answer_blocks = num_blocks_of(request.num_tokens + request.num_new_tokens, self._plan.block_size)
        fits_prefill = self._plan.cache_blocks is None or len(request.block_ids) <= self._plan.cache_blocks
        return fits_prefill and num_answer_blocks <= self._num_decode_blocks

    def kill(self, worker_id: WorkerId) -> list[Job]:
        """Ends a life; returns the jobs that it had."""
        worker = self._prefill[worker_id]
        assert not worker.dead
        lost = worker.kill()
        self.ended_lives.append(worker)
        self._store.retire(worker.slot, worker.cache)
        for router in self._routers:
            router.lose(worker)
        return lost

    def start_prefill(self, worker_id: WorkerId, incarnation: int) -> None:
        """A new life, with nothing in its cache."""
        self._prefill[worker_id] = SimulatedPrefillWorker(
            self._info(worker_id, incarnation, Role.PREFILL),
            self._store.register(worker_id),
            self._profile,
            BlockCache(self._plan.cache_blocks),
            self._events,
            self._prefill_events,
            len(self._routers),
        )
        self._announce(self._prefill[worker_id])

    def report(self, worker: Worker) -> None:
        """The worker tells its load to all routers, and its cache's changes to the index."""
        self._store.publish(worker.slot, worker.cache)
        if isinstance(worker, SimulatedPrefillWorker):
            loads = [worker.load(router.index) for router in self._routers]
        else:
            loads = [worker.load()] * len(self._routers)
        self._events.at(self._events.now_s + self._plan.report_s, self._deliver, worker, loads)

    def report_submit(self, worker: SimulatedPrefillWorker) -> None:
        """A submit was taken. Without a report now, other routers learn of it when the step ends."""
        if self._plan.report_submits:
            self.report(worker)

    def tick(self) -> None:
        """Who has not reported for a while does."""
        for prefill in self._prefill.values():
            if not prefill.in_step and not prefill.dead:
                self.report(prefill)
        for decode in self._decode.values():
            self.report(decode)

    def _start_decode(self, worker_id: WorkerId) -> None:
        self._decode[worker_id] = SimulatedDecodeWorker(
            self._info(worker_id, 1, Role.DECODE),
            self._store.register(worker_id),
            self._profile,
            BlockCache(self._num_decode_blocks),
            self._events,
            self._decode_events,
        )
        self._announce(self._decode[worker_id])

    def _announce(self, worker: Worker) -> None:
        for router in self._routers:
            router.admit(worker.info, self._events.now_s)
        self.report(worker)

    def _deliver(self, worker: Worker, loads: Sequence[WorkerLoad]) -> None:
        if not worker.dead:
            for router, load in zip(self._routers, loads, strict=True):
                router.take_report(worker, load, self._events.now_s)

    def _info(self, worker_id: WorkerId, incarnation: int, role: Role) -> WorkerInfo:
        return WorkerInfo(
            worker_id=worker_id,
            incarnation=incarnation,
            role=role,
            address="",
            model=self._profile.name,
            max_model_len=1 << 30,
            vocab_size=1,
            eos_token_ids=(),
            block_size=self._plan.block_size,
            num_bytes_per_block=round(self._profile.kv_bytes_per_token * self._plan.block_size),
            key_root=b"",
            layout_fingerprint=b"",
            index_stride=self._plan.block_size,
            draining=False,
            backend="simulated",
            chunk_tokens=self._profile.chunk_tokens,
        )
