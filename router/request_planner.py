"""Plans requests: asks the index, adds what the router itself has under way, and keeps account of each plan."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from common.kv.block_key import BlockKey
from common.request import WorkerId
from router.admission import AdmittedRequest
from router.answer import Answer
from router.background import Background
from router.decision_log import Decision, DecisionLog
from router.metrics import RouterMetrics
from router.planning.books import Booking, Books
from router.planning.deadline import check_deadline
from router.planning.plan import Plan, PlanRequest
from router.planning.planner import Planner
from router.planning.prefix_history import PrefixHistory
from router.planning.prefix_miss import explain_miss
from router.planning.reachability import check_reachable
from router.planning.speculation import speculation_s
from router.prefix_lookup import PrefixLookup

# The home of a prompt in the hash ring is that of so many of its first points: deep enough to tell prompts apart that
# begin alike, not so deep that turns of one conversation part.
HOME_POINTS = 8
# Of a prompt's new points, so many are told to other routers before the worker tells them itself.
MAX_SPECULATED_POINTS = 256


@dataclass(slots=True, kw_only=True)
class PlannedRequest:
    """One request's planning, from its first plan to its end. Owned by its conductor."""

    request: AdmittedRequest
    decision: Decision
    prefix_key: bytes


class RequestPlanner:
    """Owned by the event loop."""

    def __init__(
        self,
        *,
        planner: Planner,
        books: Books,
        lookup: PrefixLookup,
        background: Background,
        metrics: RouterMetrics,
        decisions: DecisionLog,
    ) -> None:
        self._planner = planner
        self._books = books
        self._lookup = lookup
        self._background = background
        self._metrics = metrics
        self._decisions = decisions
        self._history = PrefixHistory()

    def begin(self, request: AdmittedRequest) -> PlannedRequest:
        """Once per request, before its first plan."""
        known_points = self._history.count_known(request.point_keys)
        self._history.add(request.point_keys)
        decision = Decision(
            request_id=request.command.request_id,
            num_prompt_tokens=len(request.prompt_token_ids),
            known_tokens=known_points * request.worker.index_stride,
        )
        if not request.command.canary:
            self._decisions.add(decision)
        return PlannedRequest(request=request, decision=decision, prefix_key=_prefix_key(request))

    async def plan(self, planned: PlannedRequest, *, num_done_tokens: int, excluded: frozenset[str]) -> Plan | None:
        """A plan for the prompt and the answer's `num_done_tokens`, or None when no worker is left.

        Raises InvalidRequestError when a pinned worker is not there, and OverloadedError when the request would miss
        its deadline and has not begun.
        """
        request = planned.request
        found = await self._lookup.depths(request.worker, request.point_keys)
        now_s = time.monotonic()
        plan = self._planner.plan(
            _plan_request(planned, num_done_tokens, excluded),
            _in_tokens(self._books.routes.extend(found.expected, request.point_keys, now_s), request),
            now_s,
            held=_in_tokens(found.held, request),
        )
        if plan is not None and num_done_tokens == 0:
            left_s = None if request.deadline_s is None else request.deadline_s - now_s
            check_deadline(plan, left_s=left_s, num_wanted_tokens=max(1, request.sampling.min_tokens))
        return plan

    async def plan_move(
        self, planned: PlannedRequest, *, num_done_tokens: int, excluded: frozenset[str]
    ) -> Plan | None:
        """Where a choice goes on whose KV another worker keeps, or None when no worker is left."""
        request = planned.request
        found = await self._lookup.depths(request.worker, request.point_keys)
        return self._planner.plan_move(
            _plan_request(planned, num_done_tokens, excluded),
            _in_tokens(found.expected, request),
            time.monotonic(),
        )

    def book(self, planned: PlannedRequest, plan: Plan) -> Booking:
        """The plan is carried out: takes it on account, and tells other routers where the prefix will be."""
        request = planned.request
        planned.decision.plans.append(plan)
        self._metrics.count_decision(request.command, plan.kind, plan.reason)
        booking = self._books.book(plan, request.point_keys, request.worker.index_stride)
        worker_id = plan.computing.candidate.worker_id
        first = plan.depths.get(worker_id, 0) // request.worker.index_stride
        new_points = request.point_keys[first : first + MAX_SPECULATED_POINTS]
        account = self._books.roster.find(worker_id)
        if new_points and account is not None and account.load.num_routers > 1:
            self._background.start(self._lookup.speculate(account.info, new_points, first, speculation_s(plan)))
        return booking

    def check_reachable(self, request: AdmittedRequest) -> None:
        """Raises InvalidRequestError or UnavailableError when waiting for a worker is in vain."""
        check_reachable(self._books.roster, request.command.route)

    def end(self, planned: PlannedRequest, answer: Answer) -> None:
        """The request was answered: notes what came of its first plan."""
        decision = planned.decision
        if not decision.plans or answer.num_cached_tokens is None:
            return
        plan = decision.plans[0]
        num_new_tokens = max(len(choice.token_ids) for choice in answer.choices)
        if not planned.request.command.canary:  # which come all the time, and want two tokens
            self._planner.note_answer(num_new_tokens, answer.transfer_s)
        decision.num_cached_tokens = answer.num_cached_tokens
        decision.ttft_s = answer.ttft_s
        self._metrics.observe_plan(planned.request.command, plan, answer.ttft_s, answer.tpot_s)
        if planned.request.sampling.prompt_logprobs is not None:
            return  # the prefix cache was bypassed
        decision.miss = explain_miss(
            num_tokens=decision.num_prompt_tokens,
            num_cached=answer.num_cached_tokens,
            chosen_depth=plan.num_cached_tokens,
            best_depth=max(one.candidate.num_cached_tokens for one in plan.prefill or plan.decode),
            known_depth=decision.known_tokens,
            stride=planned.request.worker.index_stride,
        )
        self._metrics.count_misses(planned.request.command, decision.miss)


def _plan_request(planned: PlannedRequest, num_done_tokens: int, excluded: frozenset[str]) -> PlanRequest:
    """For the prompt and the answer's `num_done_tokens`."""
    request = planned.request
    assert request.sampling.max_tokens is not None
    return PlanRequest(
        num_tokens=len(request.prompt_token_ids) + num_done_tokens,
        num_new_tokens=request.sampling.max_tokens - num_done_tokens,
        prefix_key=planned.prefix_key,
        hint=request.command.route,
        excluded=excluded,
    )


def _in_tokens(points: Mapping[WorkerId, int], request: AdmittedRequest) -> Mapping[WorkerId, int]:
    stride = request.worker.index_stride
    return {worker_id: count * stride for worker_id, count in points.items()}


def _prefix_key(request: AdmittedRequest) -> bytes:
    keys: Sequence[BlockKey] = request.point_keys
    if keys:
        return keys[min(HOME_POINTS, len(keys)) - 1]
    return blake2b(array("I", request.prompt_token_ids).tobytes() + request.cache_salt, digest_size=16).digest()
