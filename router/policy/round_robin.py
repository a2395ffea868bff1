"""Each in turn."""

from __future__ import annotations

from collections.abc import Sequence

from router.policy.interface import Candidate, RequestShape


class RoundRobin:
    def rank_prefill(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
        return _rotated(request, candidates)

    def rank_decode(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
        return _rotated(request, candidates)


def _rotated(request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]:
    in_order = sorted(candidates, key=lambda candidate: candidate.worker_id)
    if not in_order:
        return []
    first = request.sequence % len(in_order)
    return in_order[first:] + in_order[:first]
