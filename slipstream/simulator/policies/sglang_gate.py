"""A gate over the whole fleet, after the cache-aware policy of SGLang's router.

While the busiest worker has many more requests than the idlest one, the request goes to the idlest. Else it goes to the
best match if that covers enough of the prompt, and to the worker with the smallest cache if not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from router.policy import Candidate, Ranked, Snapshot
from router.policy.interface import ranked
from router.policy.least_loaded import rank_by_requests
from router.policy.ties import jitter


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangGate:
    """The defaults are that router's own. It counts a prompt into a worker's cache when it sends it there; here that is
    what the worker holds and what it has yet to compute. `block_size` in tokens brings the two together."""

    block_size: int

    imbalance_requests: int = 64
    imbalance_ratio: float = 1.5
    least_match: float = 0.3

    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        candidates = snapshot.candidates
        if self._unbalanced(candidates):
            return ranked([rank_by_requests(snapshot, candidate) for candidate in candidates])
        matched = max((candidate.num_cached_tokens for candidate in candidates), default=0)
        if matched > self.least_match * snapshot.request.num_tokens:
            return ranked([_rank(snapshot, one, "uncached", -float(one.num_cached_tokens)) for one in candidates])
        return ranked([_rank(snapshot, one, "cache_tokens", self._cache_tokens(one)) for one in candidates])

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([rank_by_requests(snapshot, candidate) for candidate in snapshot.candidates])

    def _cache_tokens(self, candidate: Candidate) -> float:
        return float(candidate.num_cached_blocks * self.block_size + candidate.num_queued_tokens)

    def _unbalanced(self, candidates: Sequence[Candidate]) -> bool:
        most = max((candidate.num_requests for candidate in candidates), default=0)
        least = min((candidate.num_requests for candidate in candidates), default=0)
        return most - least > self.imbalance_requests and most > self.imbalance_ratio * least


def _rank(snapshot: Snapshot, candidate: Candidate, name: str, value: float) -> Ranked:
    terms = {name: value, "tie": 0.9 * jitter(snapshot.request, candidate)}
    return Ranked.of(candidate, terms)
