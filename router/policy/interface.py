"""What a policy sees and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.request import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """The request as a policy sees it. `sequence` counts the router's requests; `draw` is uniform in [0, 1)."""

    num_tokens: int
    sequence: int
    draw: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A worker at the moment of planning. Tokens and blocks, not shares.

    `num_queued_tokens` is prefill work ahead of this request: what the worker reported, or what this router
    has in flight there, whichever is more. `num_requests` counts likewise.
    """

    worker_id: WorkerId
    num_cached_tokens: int
    num_queued_tokens: int
    num_requests: int
    max_num_seqs: int
    num_free_blocks: int
    num_needed_blocks: int

    @property
    def has_room(self) -> bool:
        return self.num_free_blocks >= self.num_needed_blocks and self.num_requests < self.max_num_seqs


class Policy(Protocol):
    """Both methods return the candidates, best first; the router tries the next when one refuses."""

    def rank_prefill(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]: ...

    def rank_decode(self, request: RequestShape, candidates: Sequence[Candidate]) -> list[Candidate]: ...
