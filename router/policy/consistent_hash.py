"""The home of the prompt's prefix in a hash ring, whatever its load; the ring's next ones after it."""

from __future__ import annotations

from router.policy.interface import Candidate, Ranked, Snapshot, ranked
from router.policy.least_loaded import rank_by_requests
from router.policy.ties import jitter

# Behind all that have a rank.
FAR = 1e6


class ConsistentHash:
    """Decode is chosen by load: what it lacks of the prefix is brought to it."""

    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([_rank(snapshot, candidate) for candidate in snapshot.candidates])

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([rank_by_requests(snapshot, candidate) for candidate in snapshot.candidates])


def _rank(snapshot: Snapshot, candidate: Candidate) -> Ranked:
    distance = FAR if candidate.home_rank is None else float(candidate.home_rank)
    terms = {"home_rank": distance, "tie": jitter(snapshot.request, candidate)}
    return Ranked.of(candidate, terms)
