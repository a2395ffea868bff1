"""When a choice ends by its tokens. Stop strings are not known here."""

from __future__ import annotations

from typing import NamedTuple

from common.engine.sequence import Sequence
from common.request import FinishReason


class Stop(NamedTuple):
    finish_reason: FinishReason
    stop_token_id: int | None = None  # when one of the request's own stop tokens was drawn


class StopRules:
    """The model's limits, applied to each request's parameters."""

    def __init__(self, *, eos_token_ids: frozenset[int], max_model_len: int) -> None:
        self.eos_token_ids = eos_token_ids
        self.max_model_len = max_model_len

    def find(self, sequence: Sequence, token_id: int, num_output_tokens: int) -> Stop | None:
        """Whether the choice ends with `token_id`, its output number `num_output_tokens` (from 1)."""
        sampling = sequence.sampling
        if num_output_tokens >= sampling.min_tokens:
            if token_id in sampling.stop_token_ids:
                return Stop(FinishReason.STOP, token_id)
            if token_id in self.eos_token_ids and not sampling.ignore_eos:
                return Stop(FinishReason.STOP)
        if sampling.max_tokens is not None and num_output_tokens >= sampling.max_tokens:
            return Stop(FinishReason.LENGTH)
        if sequence.num_prompt_tokens + num_output_tokens >= self.max_model_len:
            return Stop(FinishReason.LENGTH)
        return None
