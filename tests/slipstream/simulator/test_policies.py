"""The compared policies' choices on small snapshots."""

from __future__ import annotations

import pytest

from common.errors import ConfigError
from common.request import WorkerId
from router.policy import Candidate, RequestShape, Snapshot
from slipstream.simulator.policies import COMPARED_POLICY_NAMES, find_policy


def snapshot(*candidates: Candidate, draw: float = 0.5) -> Snapshot:
    return Snapshot(request=RequestShape(num_tokens=1000, draw=draw), candidates=candidates)


def candidate(name: str, *, cached: int = 0, queue_s: float = 0.0, **others: int) -> Candidate:
    return Candidate(worker_id=WorkerId(name), num_cached_tokens=cached, queue_s=queue_s, **others)


def best(policy: str, *candidates: Candidate, draw: float = 0.5) -> str:
    return find_policy(policy, 10).rank_prefill(snapshot(*candidates, draw=draw))[0].candidate.worker_id


@pytest.mark.parametrize("policy", COMPARED_POLICY_NAMES)
def test_every_policy_ranks_all(policy: str) -> None:
    candidates = [candidate(name, num_blocks=100, num_free_blocks=100) for name in "abcde"]
    found = find_policy(policy, 10)
    for ranked in (found.rank_prefill(snapshot(*candidates)), found.rank_decode(snapshot(*candidates))):
        assert sorted(one.candidate.worker_id for one in ranked) == list("abcde")
        assert [one.cost for one in ranked] == sorted(one.cost for one in ranked) or policy == "power_of_two"


def test_random_takes_any() -> None:
    candidates = [candidate(name) for name in "abcd"]
    assert {best("random", *candidates, draw=number / 50) for number in range(50)} == set("abcd")


def test_longest_prefix_minds_no_queue_but_among_equals() -> None:
    assert best("longest_prefix", candidate("a", cached=10, queue_s=100.0), candidate("b", cached=9)) == "a"
    assert best("longest_prefix", candidate("a", cached=9, queue_s=1.0), candidate("b", cached=9)) == "b"


def test_the_gate_takes_a_good_match_else_the_smallest_cache() -> None:
    warm, cold = candidate("warm", cached=400, num_cached_blocks=90), candidate("cold", num_cached_blocks=10)
    assert best("sglang_gate", warm, cold) == "warm"
    warm = candidate("warm", cached=300, num_cached_blocks=90)
    assert best("sglang_gate", warm, cold) == "cold"
    busy = candidate("cold", num_cached_blocks=10, num_queued_tokens=900)
    assert best("sglang_gate", warm, busy) == "warm"


def test_the_gate_turns_to_the_idlest_when_requests_are_far_apart() -> None:
    warm, cold = candidate("warm", cached=900, num_requests=70), candidate("cold", num_requests=5)
    assert best("sglang_gate", warm, cold) == "cold"
    assert best("sglang_gate", candidate("warm", cached=900, num_requests=69), cold) == "warm"


def test_dynamo_adds_uncached_and_queued_tokens() -> None:
    warm = candidate("warm", cached=600, num_queued_tokens=500)
    assert best("dynamo_cost", warm, candidate("cold")) == "warm"
    assert best("dynamo_cost", candidate("warm", cached=600, num_queued_tokens=700), candidate("cold")) == "cold"


def test_an_unknown_name_shows_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"policy: must be one of prefix_aware, .*dynamo_cost, is 'best'"):
        find_policy("best", 10)
