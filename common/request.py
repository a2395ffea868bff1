"""A request as every process sees it: what is asked (sampling) and what a worker must compute (a leg)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType

from common.errors import InvalidRequestError

RequestId = NewType("RequestId", str)
WorkerId = NewType("WorkerId", str)

MAX_CHOICES = 64
MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 128
MAX_LOGIT_BIAS = 1024


class FinishReason(StrEnum):
    """Why a choice ended. The values are OpenAI's."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen. Field names and meanings are those of vLLM's server.

    `max_tokens` is None for "up to the model's length"; `seed` is None until the router minted one.
    Raises InvalidRequestError that names the field.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequestError("max_tokens", f"must be at least 1, is {self.max_tokens}")
        if self.min_tokens < 0:
            raise InvalidRequestError("min_tokens", f"must be at least 0, is {self.min_tokens}")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequestError("min_tokens", f"{self.min_tokens} is above max_tokens {self.max_tokens}")
        _check_range("temperature", self.temperature, 0.0, 100.0)
        _check_range("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise InvalidRequestError("top_p", "must be above 0 and at most 1, is 0")
        if self.top_k < 0 or self.top_k >= 2**31:
            raise InvalidRequestError("top_k", f"must be 0 (all tokens) or more, is {self.top_k}")
        _check_range("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None and not 0 <= self.seed < 2**64:
            raise InvalidRequestError("seed", f"must be an unsigned 64-bit number, is {self.seed}")
        _check_range("repetition_penalty", self.repetition_penalty, 0.01, 100.0)  # beyond, logits overflow
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_count("logit_bias", len(self.logit_bias), MAX_LOGIT_BIAS)
        for bias in self.logit_bias.values():
            _check_range("logit_bias", bias, -100.0, 100.0)
        _check_count("stop", len(self.stop), MAX_STOP_STRINGS)
        if any(not text for text in self.stop):
            raise InvalidRequestError("stop", "stop strings must not be empty")
        _check_count("stop_token_ids", len(self.stop_token_ids), MAX_STOP_TOKEN_IDS)
        if not 1 <= self.n <= MAX_CHOICES:
            raise InvalidRequestError("n", f"must be from 1 to {MAX_CHOICES}, is {self.n}")
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None and not 0 <= count <= MAX_LOGPROBS:
                raise InvalidRequestError(name, f"must be from 0 to {MAX_LOGPROBS}, is {count}")

    @property
    def least_tokens(self) -> int:
        """Tokens that an answer has at least, whatever is drawn."""
        if self.ignore_eos and not self.stop and not self.stop_token_ids and self.max_tokens is not None:
            return self.max_tokens
        return max(1, self.min_tokens)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises InvalidRequestError when a token id of these parameters is not in the vocabulary."""
        for name, ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            for token_id in ids:
                if not 0 <= token_id < vocab_size:
                    raise InvalidRequestError(name, f"token id {token_id} is not in 0 to {vocab_size - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLogprob:
    token_id: int
    logprob: float  # natural log


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A drawn or given token's log probability under the raw logits; rank 1 is the most likely token."""

    token_id: int
    logprob: float  # natural log
    rank: int
    top: tuple[TopLogprob, ...] = ()


class LegKey(NamedTuple):
    """One attempt at some choices of a request."""

    request_id: RequestId
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What a worker must compute, or go on computing: some choices of one attempt of a request.

    `output_token_ids` are the tokens so far when one choice goes on elsewhere; a leg with several choices has
    none. `deadline_s` is on this process's monotonic clock. `cache_salt` is the length-prefixed tenant and
    client salt. `expected_cached_tokens` is what the router expects to be cached when the leg starts: it serves
    the worker's load report alone.
    """

    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    output_token_ids: tuple[int, ...] = ()
    sampling: SamplingParams
    priority: int = 0
    deadline_s: float | None = None
    cache_salt: bytes = b""
    canary: bool = False
    expected_cached_tokens: int = 0

    def __post_init__(self) -> None:
        if not self.choice_indices or len(set(self.choice_indices)) != len(self.choice_indices):
            raise InvalidRequestError("choice_indices", f"must be distinct, at least one, are {self.choice_indices}")
        if len(self.choice_indices) > 1 and self.output_token_ids:
            raise InvalidRequestError("output_token_ids", "must be empty for several choices")
        if self.sampling.seed is None:
            raise InvalidRequestError("seed", "must be set: the router mints one before it makes a leg")
        if not self.prompt_token_ids:
            raise InvalidRequestError("prompt", "must hold at least one token")

    @property
    def key(self) -> LegKey:
        return LegKey(self.request_id, self.attempt)


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not math.isfinite(value) or not low <= value <= high:
        raise InvalidRequestError(name, f"must be from {low:g} to {high:g}, is {value}")


def _check_count(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise InvalidRequestError(name, f"at most {limit} entries, got {count}")
