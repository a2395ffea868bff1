"""What a policy sees and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from common.request import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """The request as a policy sees it. `sequence` counts the router's requests; `draw` is uniform in [0, 1)."""

    num_tokens: int
    sequence: int = 0
    draw: float = 0.0


class Candidate(NamedTuple):
    """A worker at the moment of planning. Seconds are estimates by the worker's own step times.

    `queue_s` is prefill work ahead of this request: what the worker reported, less what it must have done since,
    and what this router sent it that no report shows yet. `prefill_s` computes this request's uncached tokens,
    `fleet_prefill_s` does by the mean times of the candidates.
    `work_s` is the prefill work that the worker was given lately. `transfer_s` moves the blocks that it lacks,
    `token_s` is what one more step takes with this request in the batch, `crowding_s` by how much this request
    lengthens it. `turn` counts places after the worker whose turn it is, `home_rank` those after the home of the
    prompt's prefix in a consistent hash; None: far from it.

    A tuple, for each plan makes a few dozen.
    """

    worker_id: WorkerId
    num_cached_tokens: int = 0
    queue_s: float = 0.0
    prefill_s: float = 0.0
    fleet_prefill_s: float = 0.0
    work_s: float = 0.0
    transfer_s: float = 0.0
    token_s: float = 0.0
    crowding_s: float = 0.0
    num_queued_tokens: int = 0
    num_requests: int = 0
    max_num_seqs: int = 1
    num_free_blocks: int = 0
    num_needed_blocks: int = 0
    num_blocks: int = 1
    num_cached_blocks: int = 0
    turn: int = 0
    home_rank: int | None = None

    @property
    def has_room(self) -> bool:
        return self.num_free_blocks >= self.num_needed_blocks and self.num_requests < self.max_num_seqs


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that a choice depends on.

    `utilization` is the share of time that the role's workers were busy lately, `typical_prefill_s` the mean
    prefill of late: what makes a wait long or short. `num_new_tokens` are those expected of the answer.
    """

    request: RequestShape
    candidates: Sequence[Candidate]
    utilization: float = 0.0
    typical_prefill_s: float = 0.0
    num_new_tokens: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate, what it would cost in the policy's eyes, and the terms of that cost. Less is better."""

    candidate: Candidate
    cost: float
    terms: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, candidate: Candidate, terms: Mapping[str, float]) -> Ranked:
        """Its cost is the sum of the terms."""
        return cls(candidate=candidate, cost=sum(terms.values()), terms=terms)


class Policy(Protocol):
    """Pure functions of a snapshot. Both return all candidates, best first; the router tries the next when one
    refuses. `rank_prefill` ranks workers that do both, too."""

    def rank_prefill(self, snapshot: Snapshot) -> list[Ranked]: ...

    def rank_decode(self, snapshot: Snapshot) -> list[Ranked]: ...


def ranked(costs: Sequence[Ranked]) -> list[Ranked]:
    """Best first."""
    return sorted(costs, key=_cost)


def _cost(one: Ranked) -> float:
    return one.cost
