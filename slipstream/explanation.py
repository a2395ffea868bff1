"""Why a request went where it went, in plain Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protos import admin_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateCost:
    """A worker that could have been chosen. `terms` sum up to `cost`; less is better."""

    worker_id: str
    cost: float
    terms: Mapping[str, float]
    cached_tokens: int
    has_room: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPlan:
    """One attempt; candidates best first. Fields as ExplainedPlan in protos/admin.proto."""

    kind: str
    reason: str
    num_tokens: int
    prefill: tuple[CandidateCost, ...]
    decode: tuple[CandidateCost, ...]
    predicted_ttft_ms: float | None
    predicted_tpot_ms: float | None
    utilization: float
    typical_prefill_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Fields as ExplainResponse in protos/admin.proto; `missed` counts computed prompt tokens by cause."""

    request_id: str
    made_s: float
    prompt_tokens: int
    known_tokens: int
    plans: tuple[ExplainedPlan, ...]
    cached_tokens: int | None
    ttft_ms: float | None
    missed: Mapping[str, int]
    diverged_at: int | None


def decode_explanation(message: admin_pb2.ExplainResponse) -> Explanation:
    return Explanation(
        request_id=message.request_id,
        made_s=message.made_s,
        prompt_tokens=message.prompt_tokens,
        known_tokens=message.known_tokens,
        plans=tuple(_decode_plan(plan) for plan in message.plans),
        cached_tokens=message.cached_tokens if message.HasField("cached_tokens") else None,
        ttft_ms=message.ttft_ms if message.HasField("ttft_ms") else None,
        missed={missed.cause: missed.num_tokens for missed in message.missed},
        diverged_at=message.diverged_at if message.HasField("diverged_at") else None,
    )


def _decode_plan(plan: admin_pb2.ExplainedPlan) -> ExplainedPlan:
    return ExplainedPlan(
        kind=plan.kind,
        reason=plan.reason,
        num_tokens=plan.num_tokens,
        prefill=tuple(_decode_candidate(candidate) for candidate in plan.prefill),
        decode=tuple(_decode_candidate(candidate) for candidate in plan.decode),
        predicted_ttft_ms=plan.predicted_ttft_ms if plan.HasField("predicted_ttft_ms") else None,
        predicted_tpot_ms=plan.predicted_tpot_ms if plan.HasField("predicted_tpot_ms") else None,
        utilization=plan.utilization,
        typical_prefill_ms=plan.typical_prefill_ms,
    )


def _decode_candidate(candidate: admin_pb2.CandidateCost) -> CandidateCost:
    return CandidateCost(
        worker_id=candidate.worker_id,
        cost=candidate.cost,
        terms=dict(candidate.terms),
        cached_tokens=candidate.cached_tokens,
        has_room=candidate.has_room,
    )
