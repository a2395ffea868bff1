"""Each policy's choice on small snapshots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from common.errors import ConfigError
from common.request import WorkerId
from router.policy import POLICY_NAMES, Candidate, Ranked, RequestShape, Snapshot, select_policy
from router.policy.prefix_aware import PrefixAware


def candidate(
    name: str,
    *,
    prefill_s: float = 1.0,
    queue_s: float = 0.0,
    work_s: float = 0.0,
    transfer_s: float = 0.0,
    requests: int = 0,
    free: int = 1000,
    turn: int = 0,
    home_rank: int | None = None,
) -> Candidate:
    return Candidate(
        worker_id=WorkerId(name),
        queue_s=queue_s,
        prefill_s=prefill_s,
        fleet_prefill_s=prefill_s,
        work_s=work_s,
        transfer_s=transfer_s,
        token_s=0.01 + 0.001 * requests,
        crowding_s=0.001,
        num_requests=requests,
        max_num_seqs=64,
        num_free_blocks=free,
        num_needed_blocks=10,
        num_blocks=1000,
        turn=turn,
        home_rank=home_rank,
    )


def snapshot(*candidates: Candidate, draw: float = 0.5, utilization: float = 0.6, typical_s: float = 0.5) -> Snapshot:
    return Snapshot(
        request=RequestShape(num_tokens=1000, sequence=0, draw=draw),
        candidates=candidates,
        utilization=utilization,
        typical_prefill_s=typical_s,
        num_new_tokens=100,
    )


def ids(ranked: Sequence[Ranked]) -> list[str]:
    return [str(one.candidate.worker_id) for one in ranked]


def prefill_order(name: str, given: Snapshot) -> list[str]:
    return ids(select_policy(name).rank_prefill(given))


def decode_order(name: str, given: Snapshot) -> list[str]:
    return ids(select_policy(name).rank_decode(given))


def test_prefix_aware_prefers_the_holder() -> None:
    assert prefill_order("prefix_aware", snapshot(candidate("cold"), candidate("warm", prefill_s=0.1)))[0] == "warm"


def test_prefix_aware_leaves_a_holder_whose_queue_costs_more_than_the_prefix_saves() -> None:
    given = snapshot(candidate("warm", prefill_s=0.1, queue_s=3.0), candidate("cold"))
    assert prefill_order("prefix_aware", given) == ["cold", "warm"]


@pytest.mark.parametrize(("utilization", "queue_s"), [(0.0, 0.0), (0.9, 4.0)], ids=["idle", "queues everywhere"])
def test_prefix_aware_waits_longer_for_the_holder(utilization: float, queue_s: float) -> None:
    warm, cold = candidate("warm", prefill_s=0.1, queue_s=queue_s + 3.0), candidate("cold", queue_s=queue_s)
    assert prefill_order("prefix_aware", snapshot(warm, cold, utilization=utilization))[0] == "warm"


@pytest.mark.parametrize(
    ("crowd", "others", "chosen"),
    [
        (6, 0, "holder"),
        (20, 0, "cold"),  # a crowd at the only holder: a copy serves all of it
        (20, 4, "holder"),  # they queue everywhere: a copy would only lengthen another queue
    ],
)
def test_prefix_aware_copies_a_prefix_that_a_crowd_waits_for(crowd: int, others: int, chosen: str) -> None:
    holder = candidate("holder", prefill_s=0.02, queue_s=0.4, requests=crowd)
    cold = candidate("cold", prefill_s=0.3, requests=others)
    assert prefill_order("prefix_aware", snapshot(holder, cold, typical_s=0.02))[0] == chosen


def test_prefix_aware_needs_no_copy_while_one_holder_is_free() -> None:
    crowded, free = (candidate(name, prefill_s=0.02, requests=count) for name, count in (("a", 50), ("b", 1)))
    given = snapshot(crowded, free, candidate("cold", prefill_s=0.3), typical_s=0.02)
    assert prefill_order("prefix_aware", given) == ["b", "a", "cold"]


def test_prefix_aware_gives_equals_to_the_one_that_had_less_work() -> None:
    given = snapshot(candidate("busy", work_s=100.0), candidate("rested", work_s=90.0))
    assert prefill_order("prefix_aware", given)[0] == "rested"


def test_prefix_aware_costs_are_the_sum_of_their_terms() -> None:
    given = snapshot(candidate("warm", prefill_s=0.1, queue_s=3.0), candidate("cold", work_s=7.0))
    for one in [*PrefixAware().rank_prefill(given), *PrefixAware().rank_decode(given)]:
        assert one.cost == pytest.approx(sum(one.terms.values()))


def test_prefix_aware_decode_without_room_comes_last() -> None:
    assert (
        decode_order("prefix_aware", snapshot(candidate("full", free=5), candidate("free", requests=20)))[0] == "free"
    )


def test_prefix_aware_decode_weighs_load_against_transfer() -> None:
    given = snapshot(candidate("holder", requests=30), candidate("idle", transfer_s=0.5))
    assert decode_order("prefix_aware", given) == ["idle", "holder"]
    given = snapshot(candidate("holder", requests=1), candidate("idle", transfer_s=0.5))
    assert decode_order("prefix_aware", given) == ["holder", "idle"]


@pytest.mark.parametrize("name", ["prefix_aware", "least_loaded", "power_of_two"])
def test_ties_are_spread(name: str) -> None:
    three = [candidate("a"), candidate("b"), candidate("c")]
    firsts = Counter(prefill_order(name, snapshot(*three, draw=draw / 300))[0] for draw in range(300))
    assert set(firsts) == {"a", "b", "c"}
    assert min(firsts.values()) > 50


def test_least_loaded_ignores_prefixes() -> None:
    given = snapshot(candidate("warm", prefill_s=0.1, queue_s=0.1), candidate("cold"))
    assert prefill_order("least_loaded", given) == ["cold", "warm"]


def test_round_robin_takes_turns() -> None:
    given = snapshot(candidate("b", turn=1), candidate("a", turn=0), candidate("c", turn=2))
    assert prefill_order("round_robin", given) == ["a", "b", "c"]


def test_power_of_two_never_takes_the_most_loaded_of_two() -> None:
    two = [candidate("busy", queue_s=1.0), candidate("idle")]
    assert {prefill_order("power_of_two", snapshot(*two, draw=draw / 50))[0] for draw in range(50)} == {"idle"}


def test_power_of_two_does_not_look_at_all() -> None:
    many = [candidate(f"busy-{index}", queue_s=1.0) for index in range(20)]
    firsts = {
        prefill_order("power_of_two", snapshot(*many, candidate("idle"), draw=draw / 50))[0] for draw in range(50)
    }
    assert firsts != {"idle"}


def test_consistent_hash_goes_home_whatever_the_load() -> None:
    given = snapshot(candidate("near", home_rank=1), candidate("home", home_rank=0, queue_s=9.0), candidate("far"))
    assert prefill_order("consistent_hash", given) == ["home", "near", "far"]


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_no_candidate_no_choice(name: str) -> None:
    assert select_policy(name).rank_prefill(snapshot()) == []
    assert select_policy(name).rank_decode(snapshot()) == []


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_every_candidate_is_ranked(name: str) -> None:
    five = [candidate(f"worker-{index}", turn=index, requests=index) for index in range(5)]
    assert sorted(prefill_order(name, snapshot(*five))) == [one.worker_id for one in five]
    assert sorted(decode_order(name, snapshot(*five))) == [one.worker_id for one in five]


def test_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="prefix_aware"):
        select_policy("fastest")
