"""Computes a step on the model: batch, forward pass, logits where they are needed, tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from common.engine.batch_builder import BatchBuilder
from common.engine.finite import finite_rows, peaks
from common.engine.kv_cache import KVCache
from common.engine.logprobs import token_logprobs
from common.engine.sampled_token import SampledToken, SequenceResult
from common.engine.sampler import Sampler, SamplingRow
from common.engine.scheduler_output import ScheduledSequence
from common.engine.single_thread import single_thread
from common.kv.manager import BlockCopy
from common.model.causal_lm import CausalLM
from common.request import TokenLogprob

# Rows whose logits are held at once for prompt logprobs: 128 rows of 49,152 float32 are 25 MB.
PROMPT_LOGITS_ROWS = 128
NOT_FINITE = "the model computed numbers that are not finite"


class ModelRunner:
    """Owner of the model's use of the KV cache. The engine thread."""

    def __init__(self, *, model: CausalLM, kv_cache: KVCache, sampler: Sampler) -> None:
        self.kv_cache = kv_cache
        self._model = model
        self._sampler = sampler
        self._batches = BatchBuilder(block_size=kv_cache.spec.block_size, device=kv_cache.device)

    def copy_blocks(self, copies: Sequence[BlockCopy]) -> None:
        """Makes the copies one after the other."""
        self.kv_cache.copy_blocks(copies)

    @torch.inference_mode()
    def execute(self, scheduled: Sequence[ScheduledSequence]) -> list[SequenceResult]:
        """One result per scheduled sequence, in order."""
        batch = self._batches.build(scheduled)
        hidden = self._model(batch, self.kv_cache)  # [num_tokens, hidden_size]
        broken = _broken(hidden, batch.query_start_loc_cpu)
        prompt_logprobs = [
            self._prompt_logprobs(entry, hidden, first_row)
            for entry, first_row in zip(scheduled, batch.query_start_loc_cpu, strict=False)
        ]
        sampling = [entry for entry in scheduled if entry.samples]
        tokens, broken_logits = self._sample(sampling, hidden, batch.logits_indices)
        drawn = iter(zip(tokens, broken_logits, strict=True))
        results = []
        for entry, logprobs, is_broken in zip(scheduled, prompt_logprobs, broken, strict=True):
            entry_tokens, has_broken_logits = next(drawn) if entry.samples else ((), False)
            error = NOT_FINITE if is_broken or has_broken_logits else None
            results.append(SequenceResult(entry_tokens, logprobs, error))
        return results

    def _sample(
        self, scheduled: Sequence[ScheduledSequence], hidden: torch.Tensor, logits_indices: torch.Tensor
    ) -> tuple[list[tuple[SampledToken, ...]], list[bool]]:
        """Tokens by sequence, one per choice, and whether its logits were not finite."""
        if not scheduled:
            return [], []
        # With threads the choice of 8 rows took 0.5 ms, several where cores are shared. Who decodes wants all.
        with single_thread(hidden.device):
            rows_wanted = hidden if len(logits_indices) == len(hidden) else hidden[logits_indices]
        logits = self._model.logits(rows_wanted)  # [num_logits, vocab_size] float32
        greatest = peaks(logits)
        broken = [not is_finite for is_finite in greatest.is_finite]
        rows = [
            SamplingRow(
                logits_row=index,
                sampling=entry.sequence.sampling,
                choice_index=choice_index,
                position=entry.start + entry.num_tokens,
                num_output_tokens=entry.start + entry.num_tokens - entry.sequence.num_prompt_tokens,
                penalties=entry.sequence.penalties,
            )
            for index, entry in enumerate(scheduled)
            for choice_index in entry.sequence.choice_indices
        ]
        if any(broken):
            logits = torch.where(logits.isfinite(), logits, torch.zeros((), device=logits.device))
            greatest = peaks(logits)
        drawn = iter(self._sampler.sample(logits, rows, greatest.token_ids))
        return [tuple(next(drawn) for _ in entry.sequence.choice_indices) for entry in scheduled], broken

    def _prompt_logprobs(
        self, entry: ScheduledSequence, hidden: torch.Tensor, first_row: int
    ) -> tuple[TokenLogprob, ...]:
        """Of the prompt tokens that come after the tokens of this chunk."""
        sequence = entry.sequence
        num_top = sequence.sampling.prompt_logprobs
        if num_top is None or not sequence.wants_prompt_logprobs:
            return ()
        end = min(entry.start + entry.num_tokens, sequence.num_prompt_tokens - 1)
        logprobs: list[TokenLogprob] = []
        for start in range(entry.start, end, PROMPT_LOGITS_ROWS):
            stop = min(start + PROMPT_LOGITS_ROWS, end)
            offset = first_row - entry.start
            logits = self._model.logits(hidden[start + offset : stop + offset])
            predicted = sequence.token_ids[start + 1 : stop + 1].tolist()
            with single_thread(logits.device):
                logprobs += token_logprobs(logits, predicted, [num_top] * len(predicted))
        return tuple(logprobs)


def _broken(hidden: torch.Tensor, query_start_loc: Sequence[int]) -> list[bool]:
    """By sequence, whether a hidden state is not finite; hidden is [num_tokens, hidden_size].

    A token's hidden state depends on its own keys and values in every layer, so that where it is finite, they are.
    """
    finite = finite_rows(hidden)
    if finite.all():
        return [False] * (len(query_start_loc) - 1)
    return [not finite[start:end].all() for start, end in pairwise(query_start_loc)]
