"""A simulated decode worker: reservations, and a continuous batch that advances many steps at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from common.cost import DecodeWork, PrefillWork
from common.engine.block_forecast import BlockEvent
from router.worker_info import WorkerInfo, WorkerLoad
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.credit_desk import CreditDesk
from slipstream.simulator.events import EventQueue
from slipstream.simulator.job import Job
from slipstream.simulator.profile import Profile
from slipstream.simulator.step_model import Line, num_steps_within, span_s
from slipstream.simulator.warm_up import warmed_up_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeEvents:
    """Who is told: that a job has its last token, that one which waited for blocks has them, and that the batch, or
    what is reserved, is another one."""

    answer_done: Callable[[Job], None]
    mapped: Callable[[Job], None]
    changed: Callable[[SimulatedDecodeWorker], None]


class SimulatedDecodeWorker:
    """Between two changes of the batch, steps are counted, not run: their time grows with the KV in a known way.

    `_base_s` is the end of step number `_num_steps`, up to one step in the future while the batch runs.
    """

    def __init__(
        self,
        info: WorkerInfo,
        slot: int,
        profile: Profile,
        cache: BlockCache,
        events: EventQueue,
        listener: DecodeEvents,
    ) -> None:
        self.info = info
        self.slot = slot
        self.cache = cache
        self.dead = False
        self.link_free_s = 0.0
        self.num_requests_s = 0.0  # requests in the batch, summed over time
        self.num_kv_token_s = 0.0  # tokens of KV that they hold, summed over time
        self.desk = CreditDesk(cache, info.block_size, events)
        self._profile = profile
        self._events = events
        self._listener = listener
        self._base_s = 0.0
        self._num_steps = 0
        self._num_kv_tokens = 0
        self._lines: Sequence[Line] = ()
        self._ends: list[tuple[int, int, Job]] = []  # by the step after which they have their last token
        self._version = 0
        self._busy_s = 0.0
        self._fit = warmed_up_fit(profile)
        self._times = self._fit.times()

    @property
    def busy_s(self) -> float:
        """All the time that it has spent in steps."""
        running_s = self._events.now_s - self._base_s if self._ends else 0.0
        return self._busy_s + running_s

    def try_reserve(self, job: Job, map_after_s: float | None) -> bool:
        """Room for the prompt and the answer: blocks now, or, with `map_after_s`, when `try_map` asks for them."""
        num_taken = len(self._ends) + len(self.desk)
        if num_taken >= self._profile.max_num_seqs:
            return False
        if not self.desk.try_reserve(job, map_after_s, self._releases if num_taken else None):
            return False
        self._listener.changed(self)
        return True

    def try_map(self, job: Job) -> bool:
        """Blocks for what was reserved. False when there are none: then `mapped` tells when there are."""
        if not self.desk.try_map(job):
            return False
        self._listener.changed(self)
        return True

    def cancel(self, job: Job) -> None:
        """Gives a reservation up."""
        self.desk.end(job)
        if job.mapped_s is not None:
            self._release(job)
        self._pay()
        self._listener.changed(self)

    def join(self, job: Job) -> None:
        """The job's KV is here: it decodes from the next step on. It has its first token, and wants more."""
        self.desk.end(job)
        self.cache.store(job.request.block_ids[job.num_decode_blocks :])
        job.num_decode_blocks = len(job.request.block_ids)
        self._move_to_boundary()
        heapq.heappush(self._ends, (self._num_steps + job.request.num_new_tokens - 1, job.number, job))
        self._num_kv_tokens += job.request.num_tokens + 1
        self._batch_changed()

    def load(self) -> WorkerLoad:
        """What it reports now. KV grows by a token per request and step: what it is between reports is not told."""
        return WorkerLoad(
            num_running=len(self._ends),
            num_reservations=len(self.desk),
            num_blocks=self.cache.capacity,
            num_free_blocks=self.cache.num_free,
            num_cached_blocks=self.cache.num_cached,
            max_num_seqs=self._profile.max_num_seqs,
            num_running_tokens=self._num_kv_tokens,
            busy_s=self.busy_s,
            step_times=self._times,
        )

    def _move_to_boundary(self) -> None:
        """To the end of the step that runs now."""
        now_s = self._events.now_s
        if not self._ends:
            self._base_s = now_s
        elif now_s > self._base_s:
            num_requests, most = len(self._ends), self._ends[0][0] - self._num_steps
            waited_s = now_s - self._base_s
            self._advance(num_steps_within(self._lines, num_requests, self._num_kv_tokens, waited_s, most))

    def _advance(self, num_steps: int) -> None:
        num_requests = len(self._ends)
        if not num_steps or not num_requests:
            return
        step_s = span_s(self._lines, num_requests, self._num_kv_tokens, 1)
        self._fit.add(PrefillWork(), DecodeWork(num_requests, self._num_kv_tokens), step_s)
        self._times = self._fit.times()
        elapsed_s = span_s(self._lines, num_requests, self._num_kv_tokens, num_steps)
        self._busy_s += elapsed_s
        self.num_requests_s += elapsed_s * num_requests
        self.num_kv_token_s += elapsed_s * (self._num_kv_tokens + num_requests * (num_steps - 1) / 2)
        self._base_s += elapsed_s
        self._num_steps += num_steps
        self._num_kv_tokens += num_requests * num_steps

    def _batch_changed(self) -> None:
        self._version += 1
        if self._ends:
            num_requests = len(self._ends)
            self._lines = self._profile.model.decode_lines(num_requests)
            num_steps = self._ends[0][0] - self._num_steps
            end_s = self._base_s + span_s(self._lines, num_requests, self._num_kv_tokens, num_steps)
            self._events.at(end_s, self._end_answers, self._version)
        self._pay()
        self._listener.changed(self)

    def _end_answers(self, version: int) -> None:
        if version != self._version:
            return
        self._advance(self._ends[0][0] - self._num_steps)
        ended: list[Job] = []
        while self._ends and self._ends[0][0] <= self._num_steps:
            job = heapq.heappop(self._ends)[2]
            self._num_kv_tokens -= job.request.num_tokens + job.request.num_new_tokens
            self._release(job)
            ended.append(job)
        self._batch_changed()
        for job in ended:
            self._listener.answer_done(job)

    def _pay(self) -> None:
        """Before anyone else is admitted."""
        for job in self.desk.pay():
            self._listener.mapped(job)

    def _releases(self) -> Iterator[BlockEvent]:
        """What the batch gives back, and when, if it stays as it is."""
        step_s = self._times.decode_step_s(len(self._ends), self._num_kv_tokens)
        for end_step, _, job in self._ends:
            num_own = self.cache.num_own(job.request.block_ids) + self.desk.num_answer_blocks(job)
            yield BlockEvent((end_step - self._num_steps) * step_s, num_own)

    def _release(self, job: Job) -> None:
        ids, num_keyed = job.request.block_ids, job.num_decode_blocks
        self.cache.release(ids[:num_keyed], len(ids) - num_keyed + self.desk.num_answer_blocks(job))
