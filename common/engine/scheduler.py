"""Decides what the next step computes. Knows counts and block tables; never the value of a token being sampled."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter

from common.engine.scheduler_config import SchedulerConfig
from common.engine.scheduler_output import ScheduledSequence, SchedulerOutput
from common.engine.sequence import Sequence, SequenceState
from common.kv.manager import BlockCopy, KVCacheManager

ORDER = attrgetter("order")


class Scheduler:
    """Spends a token budget: sequences that decode first, then prefills under way, then the queue by urgency.

    Owner: the engine, one thread. A waiting sequence is admitted when blocks for all its known tokens are free,
    with one to spare per running sequence, so that it never has to stop in mid-prompt. When a running sequence
    can't grow, the least urgent, youngest one gives way, itself if need be; a sequence whose blocks are being handed
    over never does. Its KV moves to the host, and it comes back as it was, before anything new is admitted. Where the
    host has no room, it is preempted: its KV is lost.
    """

    def __init__(self, *, kv: KVCacheManager, config: SchedulerConfig, requeue_preempted: bool) -> None:
        self.config = config
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.swapped: list[Sequence] = []
        self.num_preemptions = 0
        self.num_swap_outs = 0
        self.swapped_out_blocks = 0
        self.swapped_in_blocks = 0
        self.prefix_query_tokens = 0
        self.prefix_hit_tokens = 0
        self.num_reserved_choices = 0
        self.num_owed_blocks = 0  # of reservations that wait for blocks
        self._kv = kv
        self._requeue_preempted = requeue_preempted

    @property
    def num_running_choices(self) -> int:
        return _num_choices(self.running)

    @property
    def num_swapped_choices(self) -> int:
        return _num_choices(self.swapped)

    def __iter__(self) -> Iterator[Sequence]:
        """All sequences: in the batch, swapped out, and in the queue."""
        return chain(self.running, self.swapped, self.waiting)

    def enqueue(self, sequence: Sequence) -> None:
        sequence.state = SequenceState.WAITING
        insort(self.waiting, sequence, key=ORDER)

    def run(self, sequence: Sequence) -> None:
        """Puts a sequence that has its blocks into the batch."""
        sequence.state = SequenceState.RUNNING
        insort(self.running, sequence, key=ORDER)

    def remove(self, sequence: Sequence) -> None:
        """Takes a sequence out of queue or batch; its blocks are the caller's business."""
        if sequence.state is SequenceState.WAITING:
            self.waiting.remove(sequence)
        elif sequence.state is SequenceState.RUNNING:
            self.running.remove(sequence)
        elif sequence.state is SequenceState.SWAPPED:
            self.swapped.remove(sequence)
        sequence.state = SequenceState.ENDED

    def schedule(self) -> SchedulerOutput:
        """The next step's work. Moves the counters of what it schedules as if it were computed already."""
        step = _Step(self.config.max_num_batched_tokens)
        decoding = [sequence for sequence in self.running if sequence.num_remaining_tokens == 1]
        prefilling = [sequence for sequence in self.running if sequence.num_remaining_tokens > 1]
        self._schedule_running(decoding, step)
        self._schedule_running(prefilling, step)
        if not step.gave_way and self._schedule_swapped(step):
            self._schedule_waiting(step)
        for entry in step.entries.values():
            _advance(entry)
        return step.output()

    def _schedule_running(self, sequences: Iterable[Sequence], step: _Step) -> None:
        for sequence in sequences:
            if step.budget == 0:
                return
            if sequence.state is not SequenceState.RUNNING:
                continue
            num_tokens = min(sequence.num_remaining_tokens, step.budget)
            copies = self._grow(sequence, num_tokens, step)
            if copies is not None:
                step.add(sequence, num_tokens, copies)

    def _grow(self, sequence: Sequence, num_tokens: int, step: _Step) -> tuple[BlockCopy, ...] | None:
        """Blocks for the next tokens, at the cost of less urgent sequences; None when it had to give way itself."""
        start = sequence.num_computed_tokens
        while True:
            copies = self._kv.try_grow(sequence.table, num_computed_tokens=start, num_tokens=start + num_tokens)
            if copies is not None:
                return copies
            victim = next(candidate for candidate in reversed(self.running) if not candidate.hand_over)
            self._make_give_way(victim, step)
            if victim is sequence:
                return None

    def _make_give_way(self, victim: Sequence, step: _Step) -> None:
        dropped_copies = step.discard(victim)
        step.gave_way = True
        self.running.remove(victim)
        if not self._try_swap_out(victim, dropped_copies, step):
            self._preempt(victim, step)

    def _try_swap_out(self, victim: Sequence, dropped_copies: tuple[BlockCopy, ...], step: _Step) -> bool:
        victim.rewind()
        copies = self._kv.try_swap_out(
            victim.table,
            victim.token_ids,
            num_computed_tokens=victim.num_computed_tokens,
            contents={copy.destination: copy.source for copy in dropped_copies},
        )
        if copies is None:
            return False
        step.swap_outs += copies
        self.num_swap_outs += 1
        self.swapped_out_blocks += len(copies)
        victim.state = SequenceState.SWAPPED
        insort(self.swapped, victim, key=ORDER)
        return True

    def _preempt(self, victim: Sequence, step: _Step) -> None:
        self._kv.free(victim.table)
        victim.reset()
        self.num_preemptions += 1
        step.preempted.append(victim)
        if self._requeue_preempted:
            self.enqueue(victim)
        else:
            victim.state = SequenceState.ENDED

    def _schedule_swapped(self, step: _Step) -> bool:
        """Whether all are back."""
        while self.swapped:
            sequence = self.swapped[0]
            num_choices = self.num_running_choices + self.num_reserved_choices + len(sequence.choice_indices)
            if num_choices > self.config.max_num_seqs or step.budget == 0:
                return False
            copies = self._kv.try_swap_in(
                sequence.table,
                sequence.token_ids,
                num_computed_tokens=sequence.num_computed_tokens,
                num_spare_blocks=len(self.running),
            )
            if copies is None:
                return False
            del self.swapped[0]
            self.run(sequence)
            self.swapped_in_blocks += len(copies)
            step.add(sequence, min(sequence.num_remaining_tokens, step.budget), copies)
        return True

    def _schedule_waiting(self, step: _Step) -> None:
        num_choices = self.num_running_choices + self.num_reserved_choices
        while self.waiting and step.budget > 0:
            sequence = self.waiting[0]
            num_choices += len(sequence.choice_indices)
            copies = None if num_choices > self.config.max_num_seqs else self._try_admit(sequence)
            if copies is None:
                return
            del self.waiting[0]
            self.run(sequence)
            step.add(sequence, min(sequence.num_remaining_tokens, step.budget), copies)

    def _try_admit(self, sequence: Sequence) -> tuple[BlockCopy, ...] | None:
        """Gives it its blocks; returns the copies to make before it is computed. None when it has to wait."""
        if sequence.num_known_tokens < sequence.num_tokens:
            return None
        copies: tuple[BlockCopy, ...] | None = ()
        cached_tokens = self._try_begin(sequence, 0 if sequence.wants_prompt_logprobs else sequence.num_tokens)
        if cached_tokens == sequence.num_tokens:
            # The last token is computed again, for the next one is drawn from its row; others may use its block.
            cached_tokens -= 1
            copies = self._kv.try_grow(
                sequence.table, num_computed_tokens=cached_tokens, num_tokens=sequence.num_tokens
            )
            if copies is None:
                self._kv.free(sequence.table)
                copies, cached_tokens = (), self._try_begin(sequence, cached_tokens)
        if cached_tokens is None:
            return None
        if not sequence.leg.canary:
            self.prefix_query_tokens += sequence.num_tokens
            self.prefix_hit_tokens += cached_tokens
        sequence.num_computed_tokens = cached_tokens
        if sequence.cached_tokens is None:
            sequence.cached_tokens = min(cached_tokens, sequence.num_prompt_tokens)
        return copies

    def _try_begin(self, sequence: Sequence, max_cached_tokens: int) -> int | None:
        return self._kv.try_begin(
            sequence.table,
            sequence.token_ids,
            max_cached_tokens=max_cached_tokens,
            num_spare_blocks=len(self.running) + self.num_owed_blocks,
        )


class _Step:
    """A step being put together."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.entries: dict[Sequence, ScheduledSequence] = {}
        self.preempted: list[Sequence] = []
        self.swap_outs: list[BlockCopy] = []
        self.gave_way = False

    def add(self, sequence: Sequence, num_tokens: int, copies: tuple[BlockCopy, ...]) -> None:
        samples = num_tokens == sequence.num_remaining_tokens
        self.entries[sequence] = ScheduledSequence(sequence, sequence.num_computed_tokens, num_tokens, samples, copies)
        self.budget -= num_tokens

    def discard(self, sequence: Sequence) -> tuple[BlockCopy, ...]:
        """The copies that won't be made for it."""
        entry = self.entries.pop(sequence, None)
        if entry is None:
            return ()
        self.budget += entry.num_tokens
        return entry.copies

    def output(self) -> SchedulerOutput:
        entries = tuple(self.entries.values())
        copies = (*self.swap_outs, *(copy for entry in entries for copy in entry.copies))
        return SchedulerOutput(entries, tuple(self.preempted), copies)


def _num_choices(sequences: Iterable[Sequence]) -> int:
    return sum(len(sequence.choice_indices) for sequence in sequences)


def _advance(entry: ScheduledSequence) -> None:
    sequence = entry.sequence
    sequence.num_computed_tokens += entry.num_tokens
    if entry.samples and sequence.is_single:
        sequence.num_tokens += 1
