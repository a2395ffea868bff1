from __future__ import annotations

import pytest

from common.request import WorkerId
from router.planning.plan import Plan, PlanKind
from router.planning.speculation import GRACE_S, LATENESS, MAX_LIFE_S, speculation_s
from router.policy import Candidate, Ranked


def plan(queue_s: float, prefill_s: float) -> Plan:
    candidate = Candidate(worker_id=WorkerId("p0"), queue_s=queue_s, prefill_s=prefill_s)
    return Plan(
        kind=PlanKind.PREFILL_ONLY,
        reason="one_token",
        prefill=(Ranked(candidate=candidate, cost=0.0),),
        num_tokens=100,
        depths={},
    )


def test_others_believe_in_a_prefix_until_it_is_computed() -> None:
    assert speculation_s(plan(0.0, 0.0)) == GRACE_S
    assert speculation_s(plan(2.0, 1.0)) == pytest.approx(GRACE_S + LATENESS * 3.0)


def test_a_promise_ends_when_the_index_would_end_it() -> None:
    assert speculation_s(plan(1000.0, 1.0)) == MAX_LIFE_S
