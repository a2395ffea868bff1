"""Chooses where a leg runs: a prefill and a decode worker, or one worker that does both.

Gathers a snapshot of a few candidates a role (index depths, loads, own charges), and leaves the choice among them to
a policy. Never looks at pairs, nor at the whole fleet.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from common.config import Role
from common.errors import InvalidRequestError
from common.request import WorkerId
from router.planning.candidates import View
from router.planning.moving_mean import MovingMean
from router.planning.plan import Plan, PlanKind, PlanReason, PlanRequest
from router.planning.roster import Roster, Side
from router.planning.worker_account import WorkerAccount
from router.policy import Candidate, Policy, Ranked, RequestShape, Snapshot

MAX_CANDIDATES = 16
# Until answers have ended.
TYPICAL_NEW_TOKENS = 128.0
# From the first token until decode goes on, beside the blocks' own time, until transfers have been seen.
HAND_OVER_S = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerSettings:
    """`max_local_prefill_tokens` bounds the uncached tail that a decode worker may prefill itself; 0: never."""

    max_local_prefill_tokens: int = 0


class Planner:
    """Owned by whoever owns the roster. `plan` neither waits nor charges anyone."""

    def __init__(self, roster: Roster, policy: Policy, random_source: random.Random, settings: PlannerSettings) -> None:
        self._roster = roster
        self._policy = policy
        self._random = random_source
        self._settings = settings
        self._sequence = itertools.count()
        self._typical_prefill_s = MovingMean()
        self._typical_new_tokens = MovingMean(TYPICAL_NEW_TOKENS)
        self._hand_over_s = MovingMean(HAND_OVER_S)

    def plan(
        self,
        request: PlanRequest,
        depths: Mapping[WorkerId, int],
        now_s: float,
        *,
        held: Mapping[WorkerId, int] | None = None,
    ) -> Plan | None:
        """None when no worker is left. Raises InvalidRequestError when a worker that the request pins is not there.

        `depths` are tokens of the prompt by worker, there or under way, `held` those that are surely there: without
        them, all are.
        """
        view = View(
            request=request,
            shape=RequestShape(
                num_tokens=request.num_tokens, sequence=next(self._sequence), draw=self._random.random()
            ),
            depths=depths,
            held=depths if held is None else held,
            exclude=request.excluded | frozenset(request.hint.exclude),
            now_s=now_s,
        )
        self._check_pins(request)
        kind, reason = self._kind(request)
        if kind is PlanKind.LOCAL:
            return self._finish(view, kind, reason, decode=self._rank_local(view))
        prefill = self._rank_prefill(view)
        if kind is PlanKind.PREFILL_ONLY:
            return self._finish(view, kind, reason, prefill=prefill)
        decode = self._rank_decode(view, Role.DECODE) or self._rank_decode(view, Role.BOTH)
        if not prefill or not decode:
            return None
        local, reason = self._local_instead(view, prefill[0].candidate, decode)
        if local is not None:
            return self._finish(view, PlanKind.LOCAL, reason, decode=[local])
        return self._finish(view, kind, reason, prefill=prefill, decode=decode)

    def plan_move(self, request: PlanRequest, depths: Mapping[WorkerId, int], now_s: float) -> Plan | None:
        """Where a choice that decodes goes on; None when no other worker is left. No worker has to prefill."""
        view = View(
            request=request,
            shape=RequestShape(
                num_tokens=request.num_tokens, sequence=next(self._sequence), draw=self._random.random()
            ),
            depths=depths,
            held=depths,
            exclude=request.excluded | frozenset(request.hint.exclude),
            now_s=now_s,
        )
        decode = self._rank_decode(view, Role.DECODE) or self._rank_decode(view, Role.BOTH)
        if not decode:
            return None
        return Plan(
            kind=PlanKind.MOVE,
            reason=PlanReason.DRAIN,
            decode=tuple(decode),
            num_tokens=request.num_tokens,
            depths=depths,
            predicted_tpot_s=decode[0].candidate.token_s,
        )

    def note_answer(self, num_new_tokens: int, hand_over_s: float | None) -> None:
        """An answer has ended; `hand_over_s` is what its transfer took after the first token, if there was one."""
        self._typical_new_tokens.add(num_new_tokens)
        if hand_over_s is not None:
            self._hand_over_s.add(hand_over_s)

    def _check_pins(self, request: PlanRequest) -> None:
        # A worker that does both hands nothing over: it can decode for others, but not prefill for them.
        self._check_pin("route.prefill_worker", request.hint.prefill_worker, (Role.PREFILL,))
        self._check_pin("route.decode_worker", request.hint.decode_worker, (Role.DECODE, Role.BOTH))

    def _check_pin(self, field: str, pinned: str | None, roles: tuple[Role, ...]) -> None:
        if pinned is None:
            return
        account = self._roster.find(pinned)
        if account is None or account.info.role not in roles:
            known = sorted(one.info.worker_id for one in self._roster if one.info.role in roles)
            raise InvalidRequestError(
                field, f"no {roles[0].value} worker {pinned!r} (there are: {', '.join(known) or 'none'})"
            )

    def _kind(self, request: PlanRequest) -> tuple[PlanKind, PlanReason]:
        if request.hint.decode_only:
            return PlanKind.LOCAL, PlanReason.HINT
        if request.hint.prefill_worker is None and not len(self._roster.side(Role.PREFILL)):
            # Better one worker that does both than no answer; counted under its reason.
            return PlanKind.LOCAL, PlanReason.ROLE_BOTH if len(
                self._roster.side(Role.BOTH)
            ) else PlanReason.NO_PREFILL_WORKER
        if request.num_new_tokens == 1:
            return PlanKind.PREFILL_ONLY, PlanReason.ONE_TOKEN
        return PlanKind.SPLIT, PlanReason.APART

    def _rank_prefill(self, view: View) -> list[Ranked]:
        side = self._roster.side(Role.PREFILL)
        candidates = view.prefill_candidates(side, self._accounts(view, side, view.request.hint.prefill_worker))
        return self._policy.rank_prefill(self._snapshot(view, candidates)) if candidates else []

    def _rank_decode(self, view: View, role: Role) -> list[Ranked]:
        side = self._roster.side(role)
        candidates = view.decode_candidates(side, self._accounts(view, side, view.request.hint.decode_worker))
        return self._policy.rank_decode(self._snapshot(view, candidates)) if candidates else []

    def _rank_local(self, view: View) -> list[Ranked]:
        """Workers that do both, and decode workers beside them."""
        candidates: list[Candidate] = []
        for role in (Role.BOTH, Role.DECODE):
            side = self._roster.side(role)
            accounts = self._accounts(view, side, view.request.hint.decode_worker)
            candidates += view.prefill_candidates(side, accounts)
        return self._policy.rank_prefill(self._snapshot(view, candidates)) if candidates else []

    def _accounts(self, view: View, side: Side, pinned: str | None) -> list[WorkerAccount]:
        if pinned is not None:
            account = side.find(pinned)
            return [] if account is None or pinned in view.exclude else [account]
        if not len(side):
            return []
        return side.select(
            depths=view.depths,
            homes=side.homes(view.request.prefix_key),
            exclude=view.exclude,
            sequence=view.shape.sequence,
            max_candidates=MAX_CANDIDATES,
            draw=self._random,
        )

    def _snapshot(self, view: View, candidates: Sequence[Candidate]) -> Snapshot:
        accounts = [self._roster.find(candidate.worker_id) for candidate in candidates]
        utilizations = [account.utilization for account in accounts if account is not None]
        return Snapshot(
            request=view.shape,
            candidates=candidates,
            utilization=sum(utilizations) / len(utilizations),
            typical_prefill_s=self._typical_prefill_s.value,
            num_new_tokens=self._expected_new_tokens(view),
        )

    def _expected_new_tokens(self, view: View) -> int:
        return max(1, min(view.request.num_new_tokens, round(self._typical_new_tokens.value)))

    def _local_instead(
        self, view: View, prefill: Candidate, decode: Sequence[Ranked]
    ) -> tuple[Ranked | None, PlanReason]:
        """The decode worker that should prefill the uncached tail itself, or why none should."""
        limit = self._settings.max_local_prefill_tokens
        if limit == 0:
            return None, PlanReason.APART
        if view.request.hint.prefill_worker is not None:
            return None, PlanReason.HINT
        holders = [one for one in decode if view.held.get(one.candidate.worker_id)]
        if not holders:
            return None, PlanReason.NO_PREFIX_ON_DECODE
        best = min(holders, key=lambda one: _local_cost_s(one.candidate))
        candidate = best.candidate
        # What is only under way may never arrive, and decode must not compute it then.
        if view.request.num_tokens - view.held[candidate.worker_id] > limit:
            return None, PlanReason.LONG_TAIL
        if not candidate.has_room:
            return None, PlanReason.NO_ROOM_ON_DECODE
        apart_s = prefill.queue_s + prefill.prefill_s + self._hand_over_s.value + decode[0].candidate.transfer_s
        return (
            (best, PlanReason.SHORT_TAIL)
            if _local_cost_s(candidate) <= apart_s
            else (None, PlanReason.APART_IS_CHEAPER)
        )

    def _finish(
        self,
        view: View,
        kind: PlanKind,
        reason: PlanReason,
        *,
        prefill: Sequence[Ranked] = (),
        decode: Sequence[Ranked] = (),
    ) -> Plan | None:
        if not prefill and not decode:
            return None
        computing = (prefill or decode)[0].candidate
        self._typical_prefill_s.add(computing.prefill_s)
        account = self._roster.find(computing.worker_id)
        assert account is not None
        # From a few tokens of warm-up nothing can be foretold of a long prompt, and nobody refused for it.
        foretold = account.load.num_prefilled_tokens >= view.request.num_tokens - computing.num_cached_tokens
        return Plan(
            kind=kind,
            reason=reason,
            prefill=tuple(prefill),
            decode=tuple(decode),
            num_tokens=view.request.num_tokens,
            depths=view.depths,
            utilization=account.utilization,
            typical_prefill_s=self._typical_prefill_s.value,
            predicted_ttft_s=computing.queue_s + computing.prefill_s if foretold else None,
            predicted_tpot_s=decode[0].candidate.token_s if decode and foretold else None,
        )


def _local_cost_s(candidate: Candidate) -> float:
    """What the request waits for, and what each request of the batch waits while the tail is computed."""
    return candidate.queue_s + candidate.prefill_s * (1 + candidate.num_requests)
