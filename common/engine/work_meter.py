"""Measures what steps take, and foretells from it how long the queue will: what planning needs of a worker."""

from __future__ import annotations

from collections.abc import Iterable

from common.cost import UNMEASURED, DecodeWork, PrefillWork, StepTimeFit
from common.engine.scheduler_output import SchedulerOutput
from common.engine.sequence import Sequence


class WorkMeter:
    """Owner: the engine, one thread. `busy_s` is all the time that steps took."""

    def __init__(self, chunk_tokens: int) -> None:
        self.busy_s = 0.0
        self.times = UNMEASURED
        self._fit = StepTimeFit(UNMEASURED)
        self._chunk_tokens = chunk_tokens

    def add(self, output: SchedulerOutput, elapsed_s: float) -> None:
        """A step that ran, and no other work beside it."""
        prefill_tokens = prefill_pairs = num_decoding = num_kv_tokens = 0
        for entry in output.scheduled:
            if entry.num_tokens > 1:
                work = PrefillWork.of(entry.num_tokens, entry.start)
                prefill_tokens += work.num_tokens
                prefill_pairs += work.num_pairs
            else:
                num_decoding += 1
                num_kv_tokens += entry.start + 1
        prefill = PrefillWork(prefill_tokens, prefill_pairs)
        self._fit.add(prefill, DecodeWork(num_decoding, num_kv_tokens), elapsed_s)
        self.times = self._fit.times()
        self.busy_s += elapsed_s

    def queue_s(self, waiting: Iterable[Sequence], running: Iterable[Sequence]) -> float:
        """Seconds until all prompts of queue and batch are computed, if nothing else comes."""
        seconds = sum(self._prefill_s(sequence.num_tokens, sequence.expected_cached_tokens) for sequence in waiting)
        return seconds + sum(
            self._prefill_s(sequence.num_tokens, sequence.num_computed_tokens)
            for sequence in running
            if sequence.num_remaining_tokens > 1
        )

    def _prefill_s(self, num_tokens: int, num_computed_tokens: int) -> float:
        num_left = max(1, num_tokens - num_computed_tokens)
        return self.times.prefill_s(num_left, num_tokens - num_left, self._chunk_tokens)
