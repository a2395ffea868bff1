"""What kind of plan a request gets, from whom, and what it is told to expect."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from common.config import Role
from common.errors import InvalidRequestError, OverloadedError
from common.request import WorkerId
from router.generation import RouteHint
from router.planning.books import Books
from router.planning.deadline import check_deadline
from router.planning.plan import Plan, PlanKind, PlanRequest
from router.planning.planner import Planner, PlannerSettings
from router.planning.roster import Roster
from router.policy import select_policy
from tests.support.fleet_books import account, roster

P0, D0 = WorkerId("p0"), WorkerId("d0")


def planner(books: Roster, *, policy: str = "prefix_aware", max_local: int = 0) -> Planner:
    settings = PlannerSettings(max_local_prefill_tokens=max_local)
    return Planner(books, select_policy(policy), random.Random(0), settings)


def request(num_tokens: int = 1000, num_new_tokens: int = 100, **fields: Any) -> PlanRequest:
    return PlanRequest(num_tokens=num_tokens, num_new_tokens=num_new_tokens, **fields)


def split_fleet() -> Roster:
    return roster(account("p0"), account("p1"), account("d0", Role.DECODE), account("d1", Role.DECODE))


def made(plan: Plan | None) -> Plan:
    assert plan is not None
    return plan


def first(plan: Plan | None) -> tuple[str, str, str]:
    assert plan is not None
    names = [ranked[0].candidate.worker_id if ranked else "" for ranked in (plan.prefill, plan.decode)]
    return plan.kind.value, names[0], names[1]


def test_the_holder_computes_and_the_holder_decodes() -> None:
    plan = planner(split_fleet()).plan(request(), {P0: 640, D0: 320}, 0.0)
    assert first(plan) == ("split", "p0", "d0")
    assert made(plan).num_cached_tokens == 640
    assert len(made(plan).prefill) == len(made(plan).decode) == 2


def test_a_whole_prompt_that_is_held_leaves_a_token_to_compute() -> None:
    assert made(planner(split_fleet()).plan(request(640), {P0: 640}, 0.0)).num_cached_tokens == 639


def test_one_token_needs_no_decode_worker() -> None:
    assert made(planner(split_fleet()).plan(request(num_new_tokens=1), {}, 0.0)).kind is PlanKind.PREFILL_ONLY


def test_without_prefill_workers_decode_does_it_all() -> None:
    books = roster(account("d0", Role.DECODE))
    assert made(planner(books).plan(request(), {}, 0.0)).reason == "no_prefill_worker"
    books = roster(account("b0", Role.BOTH))
    assert made(planner(books).plan(request(), {}, 0.0)).reason == "role_both"


def test_nobody_left_is_no_plan() -> None:
    books = split_fleet()
    assert planner(books).plan(request(excluded=frozenset({"d0", "d1"})), {}, 0.0) is None
    assert planner(roster()).plan(request(), {}, 0.0) is None


def test_pins_and_exclusions_hold() -> None:
    books = split_fleet()
    hint = RouteHint(prefill_worker="p1", exclude=("d0",))
    assert first(planner(books).plan(request(hint=hint), {P0: 960, D0: 960}, 0.0)) == ("split", "p1", "d1")
    assert planner(books).plan(request(hint=RouteHint(prefill_worker="p1", exclude=("p1",))), {}, 0.0) is None
    with pytest.raises(InvalidRequestError, match=r"route.prefill_worker.*p0, p1"):
        planner(books).plan(request(hint=RouteHint(prefill_worker="d0")), {}, 0.0)


@pytest.mark.parametrize(
    ("held", "limit", "reason"),
    [
        (960, 0, "apart"),
        (960, 64, "short_tail"),
        (896, 64, "long_tail"),
        (0, 64, "no_prefix_on_decode"),
    ],
)
def test_decode_prefills_a_short_tail_itself(held: int, limit: int, reason: str) -> None:
    depths = {D0: held} if held else {}
    plan = made(planner(split_fleet(), max_local=limit).plan(request(), depths, 0.0))
    assert plan.reason == reason
    assert plan.kind is (PlanKind.LOCAL if reason == "short_tail" else PlanKind.SPLIT)


def test_what_is_only_under_way_to_decode_is_no_reason_to_prefill_there() -> None:
    plan = planner(split_fleet(), max_local=64).plan(request(), {D0: 960}, 0.0, held={})
    assert made(plan).reason == "no_prefix_on_decode"


def test_a_busy_batch_is_not_made_to_wait_for_a_tail() -> None:
    books = roster(account("p0"), account("d0", Role.DECODE, num_running=40, num_running_tokens=40_000))
    plan = planner(books, max_local=128).plan(request(), {D0: 896, P0: 896}, 0.0)
    assert made(plan).reason == "apart_is_cheaper"


def test_a_full_decode_worker_prefills_nothing() -> None:
    books = roster(account("p0", queue_s=100.0), account("d0", Role.DECODE, num_free_blocks=0))
    assert made(planner(books, max_local=128).plan(request(), {D0: 960}, 0.0)).reason == "no_room_on_decode"


def test_the_first_token_is_foretold() -> None:
    plan = made(planner(roster(account("p0", queue_s=2.0), account("d0", Role.DECODE))).plan(request(), {}, 0.5))
    assert plan.predicted_ttft_s == pytest.approx(1.5 + 0.01 + 0.1)  # what is left of the queue, a step, 1,000 tokens
    assert plan.predicted_tpot_s == pytest.approx(0.01 + 1e-4 + 1e-5)


def test_nothing_is_foretold_of_prompts_longer_than_all_that_was_computed() -> None:
    books = roster(account("p0", num_prefilled_tokens=999), account("d0", Role.DECODE))
    assert made(planner(books).plan(request(1000), {}, 0.0)).predicted_ttft_s is None
    assert made(planner(books).plan(request(999), {}, 0.0)).predicted_ttft_s is not None


def test_what_must_come_late_is_refused_with_a_hint() -> None:
    plan = made(planner(roster(account("p0", queue_s=2.0), account("d0", Role.DECODE))).plan(request(), {}, 0.0))
    check_deadline(plan, left_s=None, num_wanted_tokens=1)
    check_deadline(plan, left_s=2.2, num_wanted_tokens=1)
    with pytest.raises(OverloadedError, match="first token is expected in 2110 ms, but only 1000 ms") as refused:
        check_deadline(plan, left_s=1.0, num_wanted_tokens=1)
    assert refused.value.retry_after_s == pytest.approx(1.11)
    with pytest.raises(OverloadedError, match="token 100"):
        check_deadline(plan, left_s=2.2, num_wanted_tokens=100)


def test_booked_work_moves_the_next_request_elsewhere_until_it_is_closed() -> None:
    books = Books()
    for one in (account("p0"), account("p1"), account("d0", Role.DECODE)):
        books.roster.update(one)
    plans = planner(books.roster)
    booked = made(plans.plan(request(), {}, 0.0))
    booking = books.book(booked, (), 64)
    taken = booked.computing.candidate.worker_id
    for _ in range(10):
        assert made(plans.plan(request(), {}, 0.0)).computing.candidate.worker_id != taken
    booking.close()
    booking.close()
    chosen = Counter(made(plans.plan(request(), {}, 0.0)).computing.candidate.worker_id for _ in range(40))
    assert len(chosen) == 2


@pytest.mark.parametrize("policy", ["prefix_aware", "round_robin", "power_of_two", "consistent_hash", "least_loaded"])
def test_a_large_fleet_costs_no_more_candidates(policy: str) -> None:
    books = roster(*(account(f"p{index:04}") for index in range(300)), account("d0", Role.DECODE))
    plan = made(planner(books, policy=policy).plan(request(prefix_key=b"prefix"), {WorkerId("p0123"): 960}, 0.0))
    assert 4 <= len(plan.prefill) <= 16


def test_round_robin_takes_all_of_a_large_fleet_in_turn() -> None:
    books = roster(*(account(f"p{index:04}") for index in range(60)), account("d0", Role.DECODE))
    plans = planner(books, policy="round_robin")
    chosen = [made(plans.plan(request(), {}, 0.0)).computing.candidate.worker_id for _ in range(120)]
    assert set(Counter(chosen).values()) == {2}
