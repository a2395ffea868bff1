"""Two workers drawn by chance, the less loaded one of them (Mitzenmacher, The Power of Two Choices, 2001)."""

from __future__ import annotations

from collections.abc import Callable

from router.policy.interface import Candidate, Ranked, Snapshot, ranked
from router.policy.least_loaded import rank_by_queue, rank_by_requests
from router.policy.ties import jitter


class PowerOfTwo:
    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        return _best_of_two(snapshot, rank_by_queue)

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return _best_of_two(snapshot, rank_by_requests)


def _best_of_two(snapshot: Snapshot, rank: Callable[[Snapshot, Candidate], Ranked]) -> list[Ranked]:
    drawn = sorted(snapshot.candidates, key=lambda candidate: jitter(snapshot.request, candidate))
    two = ranked([rank(snapshot, candidate) for candidate in drawn[:2]])
    # Those that were not drawn follow, for when both refuse.
    return two + [rank(snapshot, candidate) for candidate in drawn[2:]]
