"""Takes each request from its arrival through prefill, hand-over and decode to its end."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from common.cost import map_in_s
from common.request import WorkerId
from router.planning.late_map import map_after_s
from router.planning.plan import PlanKind
from router.policy import Ranked
from slipstream.simulator.decode_worker import SimulatedDecodeWorker
from slipstream.simulator.events import EventQueue
from slipstream.simulator.fleet import SimulatedFleet
from slipstream.simulator.job import Job
from slipstream.simulator.measurements import Measurements
from slipstream.simulator.prefill_worker import SimulatedPrefillWorker
from slipstream.simulator.simulated_router import SimulatedRouter
from slipstream.simulator.trace import TraceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """`submit_s` from a router to a worker; KV moves at `transfer_bytes_per_s` out of a worker, and into one."""

    submit_s: float = 0.0005
    transfer_bytes_per_s: float
    kv_bytes_per_token: float


# Where workers die faster than they compute a prompt, no attempt would ever be the last.
MAX_ATTEMPTS = 100


class Dispatcher:
    """A request ends exactly once: answered, or rejected because no worker could ever hold it or live to answer it."""

    def __init__(
        self,
        events: EventQueue,
        network: Network,
        routers: Sequence[SimulatedRouter],
        fleet: SimulatedFleet,
        measurements: Measurements,
        ended: Callable[[], None],
        *,
        maps_late: bool,
    ) -> None:
        self._events = events
        self._network = network
        self._routers = routers
        self._fleet = fleet
        self._measurements = measurements
        self._ended = ended
        self._maps_late = maps_late
        self._waiting: list[deque[Job]] = [deque() for _ in routers]
        self._number = 0

    def arrive(self, request: TraceRequest, router_index: int) -> None:
        """A request comes to a router."""
        self._number += 1
        job = Job(request=request, number=self._number, router_index=router_index)
        if not self._fleet.can_ever_hold(request):
            self._measurements.reject()
            self._ended()
        elif not self._try_place(job):
            self._wait(job)

    def retry_waiting(self) -> None:
        """Something has become free."""
        for waiting in self._waiting:
            while waiting and self._try_place(waiting[0]):
                waiting.popleft()

    def lose(self, jobs: Iterable[Job]) -> None:
        """The worker that had these is gone: they are planned again, before those that wait for the first time."""
        for job in jobs:
            job.attempt += 1
            job.num_looks += 1
            self._routers[job.router_index].settle(job)
            if job.decode is not None:
                job.decode.cancel(job)
            job.prefill = job.decode = None
            self._measurements.num_lost += 1
            if job.attempt >= MAX_ATTEMPTS:
                self._measurements.reject()
                self._ended()
            elif not self._try_place(job):
                self._wait(job)

    def began(self, job: Job) -> None:
        """Prefill starts: what it found in its cache can be sent at once."""
        self.chunk_done(job)

    def chunk_done(self, job: Job) -> None:
        """Asks for the places of its blocks when it is time to, and sends what is computed and has one."""
        if job.decode is None:
            return
        if job.mapped_s is not None:
            self._transfer(job)
        elif not job.has_asked:
            wait_s = self._map_in_s(job)
            job.num_looks += 1
            if wait_s:
                self._events.at(self._events.now_s + wait_s, self._ask_in_time, job, job.num_looks)
            else:
                self._ask_map(job)

    def mapped(self, job: Job) -> None:
        """Decode has blocks for a job that waited for them."""
        job.transferred_s = self._events.now_s + self._network.submit_s
        self._transfer(job)
        if not job.num_remaining_tokens:
            self._events.at(job.transferred_s, self._hand_over, job, job.attempt)

    def prompt_done(self, job: Job) -> None:
        """The first token is out; decode goes on when all KV has arrived."""
        now_s = self._events.now_s
        self._routers[job.router_index].settle(job)
        if job.first_token_s is None:
            job.first_token_s = now_s
        if job.decode is None or job.mapped_s is not None:
            self._events.at(job.transferred_s, self._hand_over, job, job.attempt)

    def answer_done(self, job: Job) -> None:
        self._finish(job)
        self.retry_waiting()

    def _wait(self, job: Job) -> None:
        self._waiting[job.router_index].append(job)

    def _try_place(self, job: Job) -> bool:
        router = self._routers[job.router_index]
        plan = router.plan(job, self._events.now_s)
        if plan is None or plan.kind is PlanKind.LOCAL:
            return False
        worker = self._fleet.prefill(plan.computing.candidate.worker_id)
        if plan.kind is PlanKind.SPLIT:
            job.decode = self._reserve(job, plan.decode, map_after_s(plan, worker.info) if self._maps_late else None)
            if job.decode is None:
                return False
            # The answer to a reservation carries the worker's load.
            router.take_report(job.decode, job.decode.load(), self._events.now_s)
        job.prefill = worker
        job.has_asked = False
        job.num_sent_tokens = 0
        job.transferred_s = 0.0
        router.send(job, plan, worker)
        self._events.at(self._events.now_s + self._network.submit_s, self._submit, job, worker, job.attempt)
        return True

    def _reserve(self, job: Job, ranked: Sequence[Ranked], map_after_s: float | None) -> SimulatedDecodeWorker | None:
        for one in ranked:
            worker = self._fleet.decode(WorkerId(one.candidate.worker_id))
            if worker.try_reserve(job, map_after_s):
                return worker
            self._measurements.num_refusals += 1
        return None

    def _submit(self, job: Job, worker: SimulatedPrefillWorker, attempt: int) -> None:
        if attempt != job.attempt:
            return
        if worker.dead:
            self.lose([job])
        else:
            worker.submit(job)

    def _map_in_s(self, job: Job) -> float:
        assert job.prefill is not None
        return map_in_s(
            num_tokens=job.request.num_tokens,
            num_computed_tokens=job.num_computed_tokens,
            chunk_tokens=job.prefill.info.chunk_tokens,
            times=job.prefill.times,
            token_transfer_s=self._network.kv_bytes_per_token / self._network.transfer_bytes_per_s,
        )

    def _ask_in_time(self, job: Job, look: int) -> None:
        if look == job.num_looks:
            self._ask_map(job)

    def _ask_map(self, job: Job) -> None:
        assert job.decode is not None
        job.has_asked = True
        job.num_looks += 1
        if job.decode.try_map(job):
            job.transferred_s = self._events.now_s + 2 * self._network.submit_s
            self._transfer(job)

    def _transfer(self, job: Job) -> None:
        """Sends the KV that is computed and was not sent yet, but for blocks that decode held when it was mapped."""
        assert job.prefill is not None and job.decode is not None
        start = max(job.num_sent_tokens, job.num_decode_held * job.prefill.info.block_size)
        end = job.num_computed_tokens
        if start >= end:
            return
        num_bytes = (end - start) * self._network.kv_bytes_per_token
        begin_s = max(self._events.now_s, job.transferred_s, job.prefill.link_free_s, job.decode.link_free_s)
        job.num_sent_tokens = end
        job.transferred_s = begin_s + num_bytes / self._network.transfer_bytes_per_s
        job.prefill.link_free_s = job.decode.link_free_s = job.transferred_s
        self._measurements.num_transferred_bytes += num_bytes

    def _hand_over(self, job: Job, attempt: int) -> None:
        if attempt != job.attempt:
            return
        assert job.prefill is not None
        job.prefill.release(job)
        if job.decode is None:
            self._finish(job)
        else:
            self._routers[job.router_index].note_bandwidth(job.decode, self._network.transfer_bytes_per_s)
            job.decode.join(job)

    def _finish(self, job: Job) -> None:
        assert job.first_token_s is not None
        now_s = self._events.now_s
        hand_over_s = None if job.decode is None else max(0.0, job.transferred_s - job.first_token_s)
        self._routers[job.router_index].planner.note_answer(job.request.num_new_tokens, hand_over_s)
        self._measurements.add(job, now_s, hand_over_s)
        self._ended()
