"""Uncached work plus work under way, in tokens, after the cost of NVIDIA Dynamo's router.

Prefill: the prompt's uncached tokens and those queued. Decode: the tokens of the blocks in use, with this request's.
"""

from __future__ import annotations

from router.policy import Candidate, Ranked, Snapshot
from router.policy.interface import ranked
from router.policy.ties import jitter


class DynamoCost:
    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]:
        def rank(candidate: Candidate) -> Ranked:
            terms = {
                "uncached": float(snapshot.request.num_tokens - candidate.num_cached_tokens),
                "queued": float(candidate.num_queued_tokens),
                "tie": 0.9 * jitter(snapshot.request, candidate),
            }
            return Ranked.of(candidate, terms)

        return ranked([rank(candidate) for candidate in snapshot.candidates])

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]:
        def rank(candidate: Candidate) -> Ranked:
            terms = {
                "used_blocks": float(candidate.num_blocks - candidate.num_free_blocks),
                "needed_blocks": float(candidate.num_needed_blocks),
                "no_room": 0.0 if candidate.has_room else float(candidate.num_blocks),
                "tie": 0.9 * jitter(snapshot.request, candidate),
            }
            return Ranked.of(candidate, terms)

        return ranked([rank(candidate) for candidate in snapshot.candidates])
