"""The worker with the least queued work, whatever it holds."""

from __future__ import annotations

from collections.abc import Sequence

from router.policy.interface import Candidate, RequestShape
from router.policy.ties import jitter


class LeastLoaded:
    def rank_prefill(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
        return sorted(candidates, key=lambda candidate: candidate.num_queued_tokens + jitter(request, candidate))

    def rank_decode(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
        return sorted(
            candidates,
            key=lambda candidate: (not candidate.has_room, candidate.num_requests + jitter(request, candidate)),
        )
