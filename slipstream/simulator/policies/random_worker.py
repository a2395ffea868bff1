"""Any worker, by chance."""

from __future__ import annotations

from router.policy import Ranked, Snapshot
from router.policy.interface import ranked
from router.policy.ties import jitter


class RandomWorker:
    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        return _by_chance(snapshot)

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return _by_chance(snapshot)


def _by_chance(snapshot: Snapshot) -> list[Ranked]:
    return ranked([Ranked(candidate=one, cost=jitter(snapshot.request, one), terms={}) for one in snapshot.candidates])
