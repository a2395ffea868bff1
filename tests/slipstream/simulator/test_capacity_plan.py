from __future__ import annotations

import pytest

from common.errors import ConfigError
from router.policy import select_policy
from slipstream.simulator.capacity_plan import CapacityPlanner, PlanGoal, Trial
from slipstream.simulator.experiment import Traffic
from slipstream.simulator.measurements import Slo
from slipstream.simulator.offered_load import offered_load
from slipstream.simulator.synthetic import SyntheticTrace, parse_workload
from slipstream.simulator.trace import TraceRequest
from tests.support.simulated import ListedTrace, round_profile, scenario


def planner(trace: ListedTrace | SyntheticTrace, slo: Slo, goal: PlanGoal | None = None) -> CapacityPlanner:
    given = scenario(block_size=trace.block_size, slo=slo, profile=round_profile(transfer_bytes_per_s=1e18))
    traffic = Traffic(trace=trace, offered=offered_load(trace, given.profile))
    return CapacityPlanner(traffic, given, select_policy("least_loaded"), goal or PlanGoal(attainment=1.0))


def at_once(num_requests: int, num_new_tokens: int) -> ListedTrace:
    return ListedTrace(
        [TraceRequest(0.0, 100, num_new_tokens, range(10 * n, 10 * n + 10)) for n in range(num_requests)]
    )


def test_one_prompt_per_worker_when_none_may_wait() -> None:
    # A prompt takes 101 ms: the bound leaves no time for a second one.
    best = planner(at_once(5, 1), Slo(ttft_s=0.15)).search()
    assert (best.num_prefill, best.num_decode, best.cost, best.attained) == (5, 1, 6.0, 1.0)


def test_decode_batches_as_large_as_the_bound_allows() -> None:
    # All six decode at the same time; a step of n requests takes 1 + n ms.
    best = planner(at_once(6, 200), Slo(ttft_s=0.15, tpot_s=0.00405)).search()
    assert (best.num_prefill, best.num_decode) == (6, 2)


def test_the_cheapest_is_found_and_its_neighbours_were_tried() -> None:
    trace = SyntheticTrace(parse_workload("groups?requests=150&rate=20&seed=2&turn_tokens=100&prefix_tokens=64"))
    search = planner(trace, Slo(ttft_s=0.5, tpot_s=0.02), PlanGoal(attainment=0.9, prefill_cost=2.0, decode_cost=1.0))
    best = search.search()
    assert best.meets and best.attained is not None and best.attained >= 0.9
    assert all(trial.cost >= best.cost for trial in search.trials.values() if trial.meets)
    for fewer in ((best.num_prefill - 1, best.num_decode), (best.num_prefill, best.num_decode - 1)):
        trial = search.trials.get(fewer)
        assert min(fewer) == 0 or trial is None or not trial.meets


def test_every_trial_is_told() -> None:
    told: list[Trial] = []
    search = planner(at_once(3, 1), Slo(ttft_s=0.15))
    search._tried = told.append
    search.search()
    assert told == list(search.trials.values())


def test_a_bound_that_no_fleet_meets() -> None:
    search = planner(at_once(2, 1), Slo(ttft_s=0.01), PlanGoal(max_workers=4))
    with pytest.raises(ConfigError, match="plan: 4 workers of each role don't meet the SLO"):
        search.search()
