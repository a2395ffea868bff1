"""A simulated prefill worker: a queue, chunked steps under a token budget, a block cache."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from common.cost import DecodeWork, PrefillWork
from router.worker_info import WorkerInfo, WorkerLoad
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.events import EventQueue
from slipstream.simulator.job import Job
from slipstream.simulator.profile import Profile
from slipstream.simulator.warm_up import warmed_up_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillEvents:
    """Who is told; `step_done` after all else."""

    began: Callable[[Job], None]
    chunk_done: Callable[[Job], None]
    prompt_done: Callable[[Job], None]
    step_done: Callable[[SimulatedPrefillWorker], None]
    submit_taken: Callable[[SimulatedPrefillWorker], None]


class SimulatedPrefillWorker:
    """One life of a worker. Prompts under way come first in a step, then the queue by (priority, arrival)."""

    def __init__(
        self,
        info: WorkerInfo,
        slot: int,
        profile: Profile,
        cache: BlockCache,
        events: EventQueue,
        listener: PrefillEvents,
        num_routers: int,
    ) -> None:
        self.info = info
        self.slot = slot
        self.cache = cache
        self.dead = False
        self.busy_s = 0.0
        self.num_computed_tokens = 0
        self.link_free_s = 0.0
        self.submits_taken = [0] * num_routers
        self._profile = profile
        self._events = events
        self._listener = listener
        self._waiting: list[tuple[int, int, Job]] = []
        self._running: list[Job] = []
        self._handing_over: dict[int, Job] = {}
        self._stepping = False
        self._step_begin_s = 0.0
        self._fit = warmed_up_fit(profile)
        self.times = self._fit.times()
        # The queue's work, kept as sums so that a report costs the same for any length of the queue.
        self._num_waiting_tokens = self._num_waiting_pairs = self._num_waiting_chunks = 0

    @property
    def in_step(self) -> bool:
        return self._stepping

    @property
    def _running_s(self) -> float:
        """How long the step that runs now has been running: work that its requests don't count as done yet."""
        return self._events.now_s - self._step_begin_s if self._stepping else 0.0

    def submit(self, job: Job) -> None:
        """Takes a job into the queue."""
        self.submits_taken[job.router_index] += 1
        num_held = self.cache.num_leading(job.request.block_ids) * self.info.block_size
        job.num_expected_tokens = min(max(job.num_expected_tokens, num_held), job.request.num_tokens - 1)
        heapq.heappush(self._waiting, (job.request.priority, job.number, job))
        self._count_waiting(job, 1)
        self._start_step()
        self._listener.submit_taken(self)

    def release(self, job: Job) -> None:
        """The job's KV has been handed over, or nobody needs it."""
        self._handing_over.pop(job.number, None)
        self._release_blocks(job)
        self._start_step()

    def kill(self) -> list[Job]:
        """The end of this life: returns the jobs that are lost with it."""
        self.dead = True
        lost = [job for _, _, job in sorted(self._waiting, key=lambda entry: entry[:2])]
        return [*self._handing_over.values(), *self._running, *lost]

    def load(self, router_index: int) -> WorkerLoad:
        """What it reports to a router now."""
        num_tokens, num_pairs = self._num_waiting_tokens, self._num_waiting_pairs
        num_chunks = self._num_waiting_chunks
        for job in self._running:
            work = PrefillWork.of(job.num_remaining_tokens, job.num_computed_tokens)
            num_tokens += work.num_tokens
            num_pairs += work.num_pairs
            num_chunks += self._num_chunks(work.num_tokens)
        times = self.times
        queue_s = times.step_s * num_chunks + times.prefill_token_s * num_tokens + times.prefill_pair_s * num_pairs
        return WorkerLoad(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            num_waiting_tokens=num_tokens,
            num_blocks=self.cache.capacity,
            num_free_blocks=self.cache.num_free,
            num_cached_blocks=self.cache.num_cached,
            max_num_seqs=self._profile.max_num_seqs,
            queue_s=max(0.0, queue_s - self._running_s),
            busy_s=self.busy_s,
            num_submits_taken=self.submits_taken[router_index],
            step_times=times,
        )

    def _start_step(self) -> None:
        if self._stepping or self.dead:
            return
        budget = self._profile.chunk_tokens
        entries: list[tuple[Job, int]] = []
        for job in self._running:
            size = min(job.num_remaining_tokens, budget)
            entries.append((job, size))
            budget -= size
            if not budget:
                break
        while budget and self._waiting and len(self._running) < self._profile.max_num_seqs:
            admitted = self._try_admit()
            if admitted is None:
                break
            size = min(admitted.num_remaining_tokens, budget)
            entries.append((admitted, size))
            budget -= size
        if entries:
            self._stepping = True
            self._step_begin_s = self._events.now_s
            works = [PrefillWork.of(size, job.num_computed_tokens) for job, size in entries]
            work = PrefillWork(sum(one.num_tokens for one in works), sum(one.num_pairs for one in works))
            step_s = self._profile.model.prefill_step_s(work)
            self._events.at(self._events.now_s + step_s, self._end_step, entries, work, step_s)

    def _try_admit(self) -> Job | None:
        job = self._waiting[0][2]
        request = job.request
        num_held = self.cache.try_take(request.block_ids, 0)
        if num_held is None:
            return None
        heapq.heappop(self._waiting)
        self._count_waiting(job, -1)
        self._running.append(job)
        job.num_hit_blocks = job.num_prefill_blocks = num_held
        job.num_computed_tokens = min(num_held * self.info.block_size, request.num_tokens - 1)
        self._listener.began(job)
        return job

    def _end_step(self, entries: list[tuple[Job, int]], work: PrefillWork, step_s: float) -> None:
        if self.dead:
            return
        self._stepping = False
        self.busy_s += step_s
        self.num_computed_tokens += work.num_tokens
        self._fit.add(work, DecodeWork(), step_s)
        self.times = self._fit.times()
        for job, size in entries:
            self._advance(job, size)
        self._listener.step_done(self)
        self._start_step()

    def _advance(self, job: Job, size: int) -> None:
        job.num_computed_tokens += size
        ids = job.request.block_ids
        done = job.num_remaining_tokens == 0
        num_blocks = len(ids) if done else job.num_computed_tokens // self.info.block_size
        if num_blocks > job.num_prefill_blocks:
            self.cache.store(ids[job.num_prefill_blocks : num_blocks])
            job.num_prefill_blocks = num_blocks
        self._listener.chunk_done(job)
        if done:
            self._running.remove(job)
            self._handing_over[job.number] = job
            self._listener.prompt_done(job)

    def _release_blocks(self, job: Job) -> None:
        ids, num_keyed = job.request.block_ids, job.num_prefill_blocks
        self.cache.release(ids[:num_keyed], len(ids) - num_keyed)

    def _count_waiting(self, job: Job, sign: int) -> None:
        num_left = job.request.num_tokens - job.num_expected_tokens
        work = PrefillWork.of(num_left, job.num_expected_tokens)
        self._num_waiting_tokens += sign * work.num_tokens
        self._num_waiting_pairs += sign * work.num_pairs
        self._num_waiting_chunks += sign * self._num_chunks(num_left)

    def _num_chunks(self, num_tokens: int) -> int:
        return -(-num_tokens // self._profile.chunk_tokens)
