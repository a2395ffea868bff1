"""Routing decisions on the wire."""

from __future__ import annotations

from protos import admin_pb2 as pb
from router.decision_log import Decision
from router.planning.plan import Plan
from router.policy import Ranked


def encode_decision(decision: Decision) -> pb.ExplainResponse:
    message = pb.ExplainResponse(
        request_id=decision.request_id,
        made_s=decision.made_s,
        prompt_tokens=decision.num_prompt_tokens,
        known_tokens=decision.known_tokens,
        plans=[_encode_plan(plan) for plan in decision.plans],
        cached_tokens=decision.num_cached_tokens,
        ttft_ms=_ms(decision.ttft_s),
    )
    if decision.miss is not None:
        message.missed.extend(
            pb.MissedTokens(cause=cause.value, num_tokens=count) for cause, count in decision.miss.tokens.items()
        )
        if decision.miss.diverged_at is not None:
            message.diverged_at = decision.miss.diverged_at
    return message


def _encode_plan(plan: Plan) -> pb.ExplainedPlan:
    return pb.ExplainedPlan(
        kind=plan.kind.value,
        reason=plan.reason,
        num_tokens=plan.num_tokens,
        prefill=[_encode_ranked(one) for one in plan.prefill],
        decode=[_encode_ranked(one) for one in plan.decode],
        predicted_ttft_ms=_ms(plan.predicted_ttft_s),
        predicted_tpot_ms=_ms(plan.predicted_tpot_s),
        utilization=plan.utilization,
        typical_prefill_ms=plan.typical_prefill_s * 1000,
    )


def _encode_ranked(ranked: Ranked) -> pb.CandidateCost:
    return pb.CandidateCost(
        worker_id=ranked.candidate.worker_id,
        cost=ranked.cost,
        terms=ranked.terms,
        cached_tokens=ranked.candidate.num_cached_tokens,
        has_room=ranked.candidate.has_room,
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
