"""What planning is asked, and what it answers, with all that the answer was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from common.request import WorkerId
from router.generation import RouteHint
from router.policy import Ranked


class PlanKind(StrEnum):
    SPLIT = "split"  # prefill on one worker, decode on another
    PREFILL_ONLY = "prefill_only"  # one token: nothing to hand over
    LOCAL = "local"  # one worker does both
    MOVE = "move"  # a choice that decodes goes on elsewhere, with its KV


class PlanReason(StrEnum):
    """Why a plan is of its kind."""

    # split
    APART = "apart"  # decode workers never prefill here (max_local_prefill_tokens 0)
    NO_PREFIX_ON_DECODE = "no_prefix_on_decode"  # no decode worker holds any of the prompt
    LONG_TAIL = "long_tail"  # more is uncached on the best decode worker than it may prefill
    NO_ROOM_ON_DECODE = "no_room_on_decode"  # that worker's batch or pool is full
    APART_IS_CHEAPER = "apart_is_cheaper"  # than a prefill on that worker
    # split, or local: the request says so (route)
    HINT = "hint"
    # local
    SHORT_TAIL = "short_tail"  # a decode worker holds nearly all of the prompt
    ROLE_BOTH = "role_both"  # no prefill worker is up, and a worker does both by its role
    NO_PREFILL_WORKER = "no_prefill_worker"  # nor one that does both by its role
    # prefill_only
    ONE_TOKEN = "one_token"
    # move
    DRAIN = "drain"  # the worker that decoded it drains


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """`num_tokens` to compute, at most `num_new_tokens` to draw. `prefix_key` names the prompt's start: the key
    of one of its first points (`request_planner.HOME_POINTS`). `excluded` adds to the hint's."""

    num_tokens: int
    num_new_tokens: int
    prefix_key: bytes = b""
    hint: RouteHint = field(default_factory=RouteHint)
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Workers best first, with the terms of their cost. `prefill` is empty when local, `decode` when only one token
    is wanted.

    `predicted_ttft_s` counts from now to the first token, `predicted_tpot_s` is the time per token after it; None
    where no worker has told its step times yet. `depths` are tokens by worker, as the index had them.
    """

    kind: PlanKind
    reason: PlanReason
    prefill: tuple[Ranked, ...] = ()
    decode: tuple[Ranked, ...] = ()
    num_tokens: int
    depths: Mapping[WorkerId, int]
    utilization: float = 0.0
    typical_prefill_s: float = 0.0
    predicted_ttft_s: float | None = None
    predicted_tpot_s: float | None = None

    @property
    def computing(self) -> Ranked:
        """The worker that computes the prompt."""
        return (self.prefill or self.decode)[0]

    @property
    def num_cached_tokens(self) -> int:
        """What the computing worker is expected to reuse."""
        return self.computing.candidate.num_cached_tokens
