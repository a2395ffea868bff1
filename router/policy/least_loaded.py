"""The worker with the least queued work, whatever it holds."""

from __future__ import annotations

from router.policy.interface import Candidate, Ranked, Snapshot, ranked
from router.policy.prefix_aware import TIE_S
from router.policy.ties import jitter


class LeastLoaded:
    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([rank_by_queue(snapshot, candidate) for candidate in snapshot.candidates])

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        return ranked([rank_by_requests(snapshot, candidate) for candidate in snapshot.candidates])


def rank_by_queue(snapshot: Snapshot, candidate: Candidate) -> Ranked:
    terms = {"queue_s": candidate.queue_s, "tie_s": TIE_S * jitter(snapshot.request, candidate)}
    return Ranked.of(candidate, terms)


def rank_by_requests(snapshot: Snapshot, candidate: Candidate) -> Ranked:
    terms = {
        "requests": float(candidate.num_requests),
        "no_room": 0.0 if candidate.has_room else float(candidate.max_num_seqs),
        "tie": jitter(snapshot.request, candidate),
    }
    return Ranked.of(candidate, terms)
