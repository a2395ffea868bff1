"""The time of a step as a linear function of the work in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple


class PrefillWork(NamedTuple):
    """Prompt tokens computed in a step, and the (query, key) pairs that their attention visits."""

    num_tokens: int = 0
    num_pairs: int = 0

    @staticmethod
    def of(num_uncached_tokens: int, num_cached_tokens: int) -> PrefillWork:
        """The whole of a prompt's work, however it is cut into chunks."""
        pairs = num_uncached_tokens * num_cached_tokens + num_uncached_tokens * (num_uncached_tokens + 1) // 2
        return PrefillWork(num_uncached_tokens, pairs)


class DecodeWork(NamedTuple):
    """Requests that draw one token in a step, and the tokens of KV that they read."""

    num_requests: int = 0
    num_kv_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds: per step, per unit of each kind of work. `num_steps` tells how many steps stand behind it.

    Prefill is bound by arithmetic, so that tokens and pairs add up; decode by memory, so that the step itself
    (reading the weights) and the KV do.
    """

    step_s: float
    prefill_token_s: float
    prefill_pair_s: float
    decode_request_s: float
    decode_kv_token_s: float
    num_steps: int = 0

    def __post_init__(self) -> None:
        for name in ("step_s", "prefill_token_s", "prefill_pair_s", "decode_request_s", "decode_kv_token_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name}: must be a number of seconds, is {value!r}")

    def seconds(self, prefill: PrefillWork, decode: DecodeWork) -> float:
        """One step with this work."""
        return (
            self.step_s
            + self.prefill_token_s * prefill.num_tokens
            + self.prefill_pair_s * prefill.num_pairs
            + self.decode_request_s * decode.num_requests
            + self.decode_kv_token_s * decode.num_kv_tokens
        )

    def prefill_s(self, num_uncached_tokens: int, num_cached_tokens: int, chunk_tokens: int) -> float:
        """A prompt computed alone, in chunks of at most `chunk_tokens`."""
        # As PrefillWork.of, without making one: plans do this a few dozen times each.
        num_pairs = num_uncached_tokens * (num_cached_tokens + 0.5 * (num_uncached_tokens + 1))
        num_chunks = max(1, -(-num_uncached_tokens // chunk_tokens))
        return num_chunks * self.step_s + self.prefill_token_s * num_uncached_tokens + self.prefill_pair_s * num_pairs

    def decode_step_s(self, num_requests: int, num_kv_tokens: int) -> float:
        """One step of a batch that only decodes."""
        return self.step_s + self.decode_request_s * num_requests + self.decode_kv_token_s * num_kv_tokens


# Of no machine in particular: what is assumed until steps have been measured.
UNMEASURED = StepTimes(
    step_s=5e-3, prefill_token_s=1e-4, prefill_pair_s=1e-9, decode_request_s=1e-3, decode_kv_token_s=1e-7
)
