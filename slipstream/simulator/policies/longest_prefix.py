"""The worker that holds most of the prompt, whatever its load; among equals, the one with the shortest queue."""

from __future__ import annotations

from router.policy import Candidate, Ranked, Snapshot
from router.policy.interface import ranked
from router.policy.least_loaded import rank_by_requests
from router.policy.ties import jitter


class LongestPrefix:
    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([_rank(snapshot, candidate) for candidate in snapshot.candidates])

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([rank_by_requests(snapshot, candidate) for candidate in snapshot.candidates])


def _rank(snapshot: Snapshot, candidate: Candidate) -> Ranked:
    terms = {
        "uncached": float(snapshot.request.num_tokens - candidate.num_cached_tokens),
        "queue": 0.9 * candidate.queue_s / (1 + candidate.queue_s),  # never as much as a token
        "tie": 1e-6 * jitter(snapshot.request, candidate),
    }
    return Ranked.of(candidate, terms)
