"""Least work left: uncached tokens plus queued tokens for prefill, transfer plus load for decode."""

from __future__ import annotations

from collections.abc import Sequence

from router.policy.interface import Candidate, RequestShape
from router.policy.ties import jitter

# One token's KV costs about this share of computing it when it is only moved.
TRANSFER_TOKENS_PER_TOKEN = 0.1
# A request in decode's batch slows the others about as much as this many prefilled tokens.
DECODE_TOKENS_PER_REQUEST = 32


class PrefixAware:
    """Affinity with a load term: without one, a prefix that all share sends everything to one worker."""

    def rank_prefill(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
        def cost(candidate: Candidate) -> float:
            num_uncached = request.num_tokens - candidate.num_cached_tokens
            return num_uncached + candidate.num_queued_tokens + jitter(request, candidate)

        return sorted(candidates, key=cost)

    def rank_decode(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
        def cost(candidate: Candidate) -> tuple[bool, float]:
            num_moved = request.num_tokens - candidate.num_cached_tokens
            work = TRANSFER_TOKENS_PER_TOKEN * num_moved + DECODE_TOKENS_PER_REQUEST * candidate.num_requests
            return not candidate.has_room, work + jitter(request, candidate)

        return sorted(candidates, key=cost)
