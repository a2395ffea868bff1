"""Each in turn."""

from __future__ import annotations

from router.policy.interface import Ranked, Snapshot, ranked


class RoundRobin:
    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        return _by_turn(snapshot)

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return _by_turn(snapshot)


def _by_turn(snapshot: Snapshot) -> list[Ranked]:
    return ranked([Ranked.of(candidate, {"turn": float(candidate.turn)}) for candidate in snapshot.candidates])
