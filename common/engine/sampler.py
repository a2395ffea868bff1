"""Chooses the next tokens from a step's logits by each request's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from common.engine.finite import peaks
from common.engine.logprobs import token_logprobs
from common.engine.native_draw import Draw, draw_natively
from common.engine.penalty_counts import PenaltyCounts
from common.engine.philox import DrawKeys
from common.engine.random_draw import draw_tokens
from common.engine.sampled_token import SampledToken
from common.engine.single_thread import single_thread
from common.errors import EngineError
from common.kernels.cpu.library import CpuLibrary
from common.request import SamplingParams


class SamplingRow(NamedTuple):
    """One token to draw. Rows of several choices may share one row of logits."""

    logits_row: int
    sampling: SamplingParams
    choice_index: int
    position: int  # of the token to draw, counted from 0 in prompt + outputs
    num_output_tokens: int  # before it
    penalties: PenaltyCounts | None = None


class Sampler:
    """Stateless but for the model's end-of-sequence tokens: what it draws depends on the rows alone. With `library`,
    tokens are drawn by native code where the logits are on a CPU.

    The order is vLLM's: logprobs from raw logits; then min_tokens, logit_bias, penalties; then the most likely
    token (of equals, the lowest id), or temperature, min_p, top_k, top_p and a draw.
    """

    def __init__(self, eos_token_ids: frozenset[int], library: CpuLibrary | None = None) -> None:
        self._eos_token_ids = eos_token_ids
        self._library = library

    def sample(
        self, logits: torch.Tensor, rows: Sequence[SamplingRow], most_likely: Sequence[int] | None = None
    ) -> list[SampledToken]:
        """One token per row. `logits` is [num_logits, vocab_size] float32 and is not changed.

        `most_likely`, where the caller knows it, is the first of the greatest of each row of logits.
        """
        if most_likely is not None and all(map(_takes_most_likely, rows)):
            return [SampledToken(most_likely[row.logits_row]) for row in rows]
        num_threads = torch.get_num_threads()
        with single_thread(logits.device):
            return self._sample(logits, rows, num_threads)

    def _sample(self, logits: torch.Tensor, rows: Sequence[SamplingRow], num_threads: int) -> list[SampledToken]:
        if [row.logits_row for row in rows] != list(range(len(logits))):
            logits = logits[[row.logits_row for row in rows]]
        adjusted = self._adjust(logits, rows)
        drawn_rows = [index for index, row in enumerate(rows) if not row.sampling.greedy]
        token_ids = [0] * len(rows) if len(drawn_rows) == len(rows) else peaks(adjusted).token_ids
        if drawn_rows:
            drawn = self._draw(adjusted, rows, drawn_rows, num_threads)
            for index, token_id in zip(drawn_rows, drawn, strict=True):
                token_ids[index] = token_id
        tokens = [SampledToken(token_id) for token_id in token_ids]
        self._add_logprobs(logits, rows, tokens)
        return tokens

    def _adjust(self, logits: torch.Tensor, rows: Sequence[SamplingRow]) -> torch.Tensor:
        """The logits themselves when no row changes them, else a changed copy."""
        changed = [index for index, row in enumerate(rows) if _changes_logits(row)]
        if not changed:
            return logits
        adjusted = logits.clone()
        for index in changed:
            row = rows[index]
            if row.num_output_tokens < row.sampling.min_tokens:
                stops = sorted(self._eos_token_ids.union(row.sampling.stop_token_ids))
                adjusted[index, stops] = float("-inf")
                if not adjusted[index].amax() > float("-inf"):
                    raise EngineError("min_tokens leaves no token to draw: every one would end the answer")
            if row.sampling.logit_bias:
                bias = torch.tensor(list(row.sampling.logit_bias.values()), dtype=torch.float32, device=logits.device)
                adjusted[index, list(row.sampling.logit_bias)] += bias
            if row.penalties is not None:
                _penalise(adjusted[index], row.sampling, row.penalties)
        return adjusted

    def _draw(
        self, logits: torch.Tensor, rows: Sequence[SamplingRow], indices: list[int], num_threads: int
    ) -> list[int]:
        drawn = [rows[index] for index in indices]
        if self._library is not None and logits.device.type == "cpu":
            draws = [
                Draw(index, row.sampling, row.sampling.seed or 0, row.choice_index, row.position)
                for index, row in zip(indices, drawn, strict=True)
            ]
            return draw_natively(self._library, logits, draws, num_threads)
        keys = DrawKeys(
            seeds=np.array([row.sampling.seed or 0 for row in drawn], dtype=np.uint64),
            choice_indices=np.array([row.choice_index for row in drawn], dtype=np.uint64),
            positions=np.array([row.position for row in drawn], dtype=np.uint64),
        )
        selected = logits if len(indices) == len(rows) else logits[indices]
        return draw_tokens(selected, [row.sampling for row in drawn], keys)

    def _add_logprobs(self, logits: torch.Tensor, rows: Sequence[SamplingRow], tokens: list[SampledToken]) -> None:
        wanted = [index for index, row in enumerate(rows) if row.sampling.logprobs is not None]
        if not wanted:
            return
        logprobs = token_logprobs(
            logits[wanted],
            [tokens[index].token_id for index in wanted],
            [rows[index].sampling.logprobs or 0 for index in wanted],
        )
        for index, logprob in zip(wanted, logprobs, strict=True):
            tokens[index] = SampledToken(tokens[index].token_id, logprob)


def _takes_most_likely(row: SamplingRow) -> bool:
    return row.sampling.greedy and row.sampling.logprobs is None and not _changes_logits(row)


def _changes_logits(row: SamplingRow) -> bool:
    return row.num_output_tokens < row.sampling.min_tokens or bool(row.sampling.logit_bias) or row.penalties is not None


def _penalise(logits: torch.Tensor, sampling: SamplingParams, penalties: PenaltyCounts) -> None:
    """In place, [vocab_size]: repetition over prompt and outputs, frequency and presence over outputs."""
    token_ids = torch.from_numpy(penalties.token_ids).to(logits.device)
    counts = torch.from_numpy(penalties.output_counts).to(logits.device)
    values = logits[token_ids]
    factor = sampling.repetition_penalty
    values = torch.where(values > 0, values / factor, values * factor)
    values -= sampling.frequency_penalty * counts
    values -= sampling.presence_penalty * (counts > 0)
    logits[token_ids] = values
