from __future__ import annotations

import dataclasses

import pytest

from router.policy import select_policy
from slipstream.simulator.measurements import Slo
from slipstream.simulator.offered_load import offered_load
from slipstream.simulator.policies import COMPARED_POLICY_NAMES, find_policy
from slipstream.simulator.prefix_store import IndexDelays
from slipstream.simulator.profile import load_profile
from slipstream.simulator.simulation import Deaths, Outcome
from slipstream.simulator.synthetic import SyntheticTrace, parse_workload
from slipstream.simulator.trace import TraceRequest
from tests.support.simulated import ListedTrace, round_profile, scenario, simulate

INSTANT = 1e18  # bytes per second


def chat(num_requests: int = 400, rate: float = 40.0, seed: int = 1) -> SyntheticTrace:
    return SyntheticTrace(
        parse_workload(f"multi_turn?requests={num_requests}&rate={rate}&seed={seed}&think_s=2&prefix_tokens=2048")
    )


def h100(num_prefill: int = 4, num_decode: int = 4, **others: object) -> dict[str, object]:
    return {
        "num_prefill": num_prefill,
        "num_decode": num_decode,
        "block_size": 64,
        "profile": load_profile("h100-llama-3.1-8b"),
        **others,
    }


def seconds(outcome: Outcome) -> list[list[float]]:
    measured = outcome.measurements
    return [[round(one, 6) for one in values] for values in (measured.ttft_s, measured.tpot_s, measured.e2e_s)]


def test_a_schedule_computed_by_hand() -> None:
    # Steps: 0.000-0.101 first's tokens 0-99; 0.101-0.172 first's other 50, and 20 of second, which finds its first
    # block. Decode: 0.172-0.174 first alone; second came a moment after that step began; 0.174-0.177 both.
    first = TraceRequest(0.0, 150, 3, range(15))
    second = TraceRequest(0.05, 30, 2, [0, 101, 102])
    outcome = simulate(ListedTrace([first, second]), scenario(profile=round_profile(transfer_bytes_per_s=INSTANT)))
    assert seconds(outcome) == [[0.172, 0.122], [0.0025, 0.005], [0.177, 0.127]]
    assert (outcome.measurements.num_hit_blocks, outcome.measurements.num_blocks) == (1, 18)
    assert outcome.prefill_busy_s == [pytest.approx(0.172)]
    assert outcome.prefill_tokens == [170]
    assert outcome.decode_busy_s == [pytest.approx(0.005)]
    assert outcome.measurements.num_transferred_bytes == 180 * 1000


def test_a_more_urgent_request_overtakes_the_queue() -> None:
    requests = [
        TraceRequest(0.0, 100, 1, range(10)),
        TraceRequest(0.01, 100, 1, range(10, 20), 1),
        TraceRequest(0.02, 100, 1, range(20, 30), 0),
    ]
    outcome = simulate(ListedTrace(requests), scenario())
    assert seconds(outcome)[0] == [0.101, 0.182, 0.293]


def test_the_transfer_hides_behind_prefill_chunk_by_chunk_and_the_rest_delays_the_second_token() -> None:
    profile = round_profile(transfer_bytes_per_s=2e6)  # half a millisecond per token
    outcome = simulate(ListedTrace([TraceRequest(0.0, 200, 2, range(20))]), scenario(profile=profile))
    assert seconds(outcome) == [[0.202], [0.052], [0.254]]
    assert list(outcome.measurements.hand_over_s) == [pytest.approx(0.05)]


def test_long_prompts_get_their_places_when_the_rest_of_prefill_hides_the_transfer() -> None:
    # Four steps of 101 ms; 300 tokens, 0.5 ms each, go while they run, and the last 100 after them. Places are asked
    # for 1.25 x 150 ms and 30 ms before the end. From the first prompts the worker knows how fast it is.
    before = [TraceRequest(float(number), 400, 1, range(-40 * number - 40, -40 * number)) for number in range(9)]
    trace = ListedTrace([*before, TraceRequest(10.0, 400, 3, range(40))])
    given = scenario(profile=round_profile(transfer_bytes_per_s=2e6))
    late, at_once = simulate(trace, given), simulate(trace, dataclasses.replace(given, maps_late=False))
    for outcome in (late, at_once):
        assert [values[-1] for values in seconds(outcome)] == [0.404, 0.027, 0.458]
    assert at_once.decode_waiting_token_s == [pytest.approx(400 * 0.454)]
    assert late.decode_waiting_token_s == [pytest.approx(400 * (0.454 - (0.404 - 0.1875 - 0.03)), rel=0.05)]
    # Two steps of 2 ms, over 401 tokens and 402.
    assert late.decode_kv_token_s == [pytest.approx(0.002 * (401 + 402))]


@pytest.mark.parametrize("maps_late", [True, False])
def test_every_request_ends_once_where_decode_is_short_of_blocks(maps_late: bool) -> None:
    profile = dataclasses.replace(load_profile("h100-llama-3.1-8b"), kv_capacity_tokens=20_000, chunk_tokens=1024)
    deaths = Deaths(every_s=1.0, down_s=0.7)
    given = scenario(**h100(profile=profile, deaths=deaths, cache_blocks=300, maps_late=maps_late))  # type: ignore[arg-type]
    outcome = simulate(chat(), given)
    assert outcome.measurements.num_answered == 400
    assert outcome.measurements.num_refusals > 0
    assert (outcome.num_owed_maps > 0) is maps_late


def test_one_token_needs_no_decode() -> None:
    outcome = simulate(ListedTrace([TraceRequest(0.0, 50, 1, range(5))]), scenario())
    assert seconds(outcome) == [[0.051], [], [0.051]]
    assert outcome.measurements.num_transferred_bytes == 0


def test_a_whole_prompt_that_is_held_computes_its_last_token_again() -> None:
    requests = [TraceRequest(0.0, 50, 1, range(5)), TraceRequest(1.0, 50, 1, range(5))]
    outcome = simulate(ListedTrace(requests), scenario())
    assert seconds(outcome)[0] == [0.051, 0.002]
    assert outcome.measurements.num_hit_blocks == 5


def test_who_finds_no_room_for_its_kv_waits_for_it() -> None:
    profile = round_profile(kv_capacity_tokens=100, transfer_bytes_per_s=INSTANT)
    requests = [TraceRequest(0.0, 60, 20, range(6)), TraceRequest(0.0, 60, 20, range(6, 12))]
    outcome = simulate(ListedTrace(requests), scenario(profile=profile))
    # The first: 61 ms of prefill, 19 steps of 2 ms. The second begins then.
    assert seconds(outcome)[2] == [0.099, 0.198]
    assert outcome.measurements.num_refusals == 1


def test_what_no_worker_could_ever_hold_is_rejected() -> None:
    requests = [TraceRequest(0.0, 60, 50, range(6)), TraceRequest(0.0, 60, 20, range(6, 12))]
    measured = simulate(ListedTrace(requests), scenario(profile=round_profile(kv_capacity_tokens=100))).measurements
    assert (measured.num_rejected, measured.num_answered) == (1, 1)
    measured = simulate(ListedTrace([TraceRequest(0.0, 60, 1, range(6))]), scenario(cache_blocks=5)).measurements
    assert (measured.num_rejected, measured.num_answered) == (1, 0)


@pytest.mark.parametrize("policy", COMPARED_POLICY_NAMES)
def test_every_request_ends_once_under_every_policy(policy: str) -> None:
    outcome = simulate(chat(), scenario(**h100()), find_policy(policy, 64))  # type: ignore[arg-type]
    assert outcome.measurements.num_answered == 400
    assert outcome.measurements.num_rejected == outcome.measurements.num_lost == 0


def test_every_request_ends_once_when_workers_die() -> None:
    deaths = Deaths(every_s=1.0, down_s=0.7)
    outcome = simulate(chat(), scenario(**h100(deaths=deaths, num_routers=2)))  # type: ignore[arg-type]
    assert outcome.measurements.num_answered == 400
    assert outcome.measurements.num_lost > 0
    assert len(outcome.prefill_busy_s) == 4


def test_the_only_prefill_worker_may_die() -> None:
    deaths = Deaths(every_s=1.0, down_s=0.5)
    outcome = simulate(chat(100, 5.0), scenario(**h100(1, 1, deaths=deaths)))  # type: ignore[arg-type]
    assert outcome.measurements.num_answered == 100


def test_the_same_seed_gives_the_same_run() -> None:
    given = scenario(**h100(num_routers=3, seed=7, delays=IndexDelays(late_fraction=0.2)))  # type: ignore[arg-type]
    once, again = (simulate(chat(), given) for _ in range(2))
    assert seconds(once) == seconds(again)
    assert once.prefill_busy_s == again.prefill_busy_s
    other = simulate(chat(), dataclasses.replace(given, seed=8))
    assert seconds(other) != seconds(once)


def test_one_worker_without_a_limit_reaches_the_ceiling() -> None:
    trace = chat(200, 2.0)
    offered = offered_load(trace, load_profile("h100-llama-3.1-8b"))
    measured = simulate(trace, scenario(**h100(1, 1))).measurements  # type: ignore[arg-type]
    assert measured.num_hit_blocks == offered.num_hit_blocks
    assert measured.num_blocks == offered.num_blocks


def test_affinity_comes_near_the_ceiling_and_a_small_cache_falls_short_of_it() -> None:
    trace = chat(800)
    offered = offered_load(trace, load_profile("h100-llama-3.1-8b"))
    rates = {
        name: simulate(trace, scenario(**h100(cache_blocks=blocks)), select_policy(policy)).measurements  # type: ignore[arg-type]
        for name, policy, blocks in (
            ("aware", "prefix_aware", None),
            ("blind", "round_robin", None),
            ("small", "prefix_aware", 400),
        )
    }
    hits = {name: measured.num_hit_blocks for name, measured in rates.items()}
    assert hits["aware"] > 0.95 * offered.num_hit_blocks
    assert hits["blind"] < 0.85 * hits["aware"]
    assert hits["small"] < 0.95 * hits["aware"]


def test_late_index_writes_cost_hits_and_nothing_else() -> None:
    trace = chat(800)
    prompt = simulate(trace, scenario(**h100())).measurements  # type: ignore[arg-type]
    delays = IndexDelays(late_fraction=1.0, late_s=60.0)
    late = simulate(trace, scenario(**h100(delays=delays))).measurements  # type: ignore[arg-type]
    assert late.num_answered == prompt.num_answered
    assert late.num_hit_blocks < prompt.num_hit_blocks


def test_goodput_counts_answers_that_meet_both_bounds() -> None:
    requests = [TraceRequest(0.0, 50, 3, range(5)), TraceRequest(0.0, 90, 3, range(10, 19))]
    profile = round_profile(transfer_bytes_per_s=INSTANT)
    for slo, num_good in ((Slo(), 2), (Slo(ttft_s=0.1), 1), (Slo(ttft_s=0.15), 2), (Slo(tpot_s=0.0001), 0)):
        outcome = simulate(ListedTrace(requests), scenario(profile=profile, slo=slo))
        assert outcome.measurements.num_good == num_good
        assert outcome.measurements.num_bad == 2 - num_good


def test_routers_that_hear_of_each_others_submits_share_the_load_better() -> None:
    # Pairs of prompts, 10 ms apart, of which each router gets some, while a step lasts a second.
    requests = [
        TraceRequest(2.0 * pair + 0.01 * one, 900, 1, range(1000 * pair + 100 * one, 1000 * pair + 100 * one + 90))
        for pair in range(30)
        for one in range(2)
    ]
    means = []
    for report_submits in (False, True):
        given = scenario(num_prefill=2, num_routers=4, profile=round_profile(chunk_tokens=900))
        plan = dataclasses.replace(given.fleet, report_submits=report_submits)
        outcome = simulate(ListedTrace(requests), dataclasses.replace(given, fleet=plan), select_policy("least_loaded"))
        means.append(sum(outcome.measurements.ttft_s) / 60)
    assert means[1] == pytest.approx(0.901)
    assert means[0] > 1.0
