"""Room on a simulated decode worker for KV that is on its way, granted as `common.engine.reservation_desk` does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from common.engine.block_forecast import BlockEvent, blocks_suffice
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.events import EventQueue
from slipstream.simulator.job import Job
from slipstream.simulator.trace import num_blocks_of

Releases = Callable[[], Iterable[BlockEvent]]


class CreditDesk:
    """Jobs whose KV has not arrived: each has a credit, and blocks from its `map` on.

    Those of the answer are taken with the prompt's, so that nothing is ever preempted. `waiting_token_s` sums up how
    long tokens of prompts held blocks that could not be decoded from yet.
    """

    def __init__(self, cache: BlockCache, block_size: int, events: EventQueue) -> None:
        self.waiting_token_s = 0.0
        self.num_owed_maps = 0
        self._cache = cache
        self._block_size = block_size
        self._events = events
        self._jobs: dict[int, Job] = {}
        self._owed: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def try_reserve(self, job: Job, map_after_s: float | None, releases: Releases | None) -> bool:
        """A credit, mapped at once when `map_after_s` is None. False when its blocks are not expected to be free then.

        `releases` tells what the batch will give back; None: the worker is idle, and takes whatever fits.
        """
        job.mapped_s = None
        job.map_at_s = self._events.now_s + (map_after_s or 0.0)
        if releases is not None and not self._will_fit(job, map_after_s, releases):
            return False
        if map_after_s is None and not self._try_take(job):
            return False
        self._jobs[job.number] = job
        return True

    def try_map(self, job: Job) -> bool:
        """Blocks for a credit. False when there are none: it is owed them, and told by `pay` when it has them."""
        if self._try_take(job):
            return True
        self.num_owed_maps += 1
        self._owed[job.number] = job
        return False

    def pay(self) -> list[Job]:
        """Blocks may have come free: maps whom it owes, who asked first first, and returns them."""
        paid = [job for job in self._owed.values() if self._try_take(job)]
        for job in paid:
            del self._owed[job.number]
        return paid

    def end(self, job: Job) -> None:
        """The KV is here, or the reservation is given up."""
        del self._jobs[job.number]
        self._owed.pop(job.number, None)
        if job.mapped_s is not None:
            self.waiting_token_s += job.request.num_tokens * (self._events.now_s - job.mapped_s)

    def num_answer_blocks(self, job: Job) -> int:
        """Beside those of the prompt."""
        request = job.request
        return num_blocks_of(request.num_tokens + request.num_new_tokens, self._block_size) - len(request.block_ids)

    def _try_take(self, job: Job) -> bool:
        num_held = self._cache.try_take(job.request.block_ids, self.num_answer_blocks(job))
        if num_held is None:
            return False
        job.num_decode_held = job.num_decode_blocks = num_held
        job.mapped_s = self._events.now_s
        return True

    def _will_fit(self, job: Job, map_after_s: float | None, releases: Releases) -> bool:
        held = job.request.block_ids[: self._cache.num_leading(job.request.block_ids)]
        needs = [BlockEvent(map_after_s or 0.0, self._num_blocks(job) - len(held)), *self._needs()]
        num_free = self._cache.num_free - (self._cache.num_idle(held) if map_after_s is None else 0)
        if sum(need.num_blocks for need in needs) <= num_free:
            return True  # whatever comes free: this spares asking for it
        return blocks_suffice(num_free, needs, releases())

    def _needs(self) -> Iterator[BlockEvent]:
        now_s = self._events.now_s
        for job in self._jobs.values():
            if job.mapped_s is None:
                yield BlockEvent(max(0.0, job.map_at_s - now_s), self._num_blocks(job))

    def _num_blocks(self, job: Job) -> int:
        return len(job.request.block_ids) + self.num_answer_blocks(job)
