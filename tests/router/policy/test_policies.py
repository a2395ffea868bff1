"""Each policy's choice on small snapshots."""

from __future__ import annotations

from collections import Counter

import pytest

from common.errors import ConfigError
from common.request import WorkerId
from router.policy import POLICY_NAMES, Candidate, RequestShape, select_policy


def candidate(name: str, *, cached: int = 0, queued: int = 0, requests: int = 0, free: int = 1000) -> Candidate:
    return Candidate(
        worker_id=WorkerId(name),
        num_cached_tokens=cached,
        num_queued_tokens=queued,
        num_requests=requests,
        max_num_seqs=64,
        num_free_blocks=free,
        num_needed_blocks=10,
    )


def shape(num_tokens: int = 1000, sequence: int = 0, draw: float = 0.5) -> RequestShape:
    return RequestShape(num_tokens=num_tokens, sequence=sequence, draw=draw)


def ids(ranked: list[Candidate]) -> list[str]:
    return [str(each.worker_id) for each in ranked]


def test_prefix_aware_prefers_the_holder() -> None:
    ranked = select_policy("prefix_aware").rank_prefill(shape(), [candidate("cold"), candidate("warm", cached=900)])
    assert ids(ranked) == ["warm", "cold"]


def test_prefix_aware_leaves_a_holder_whose_queue_costs_more_than_the_prefix_saves() -> None:
    ranked = select_policy("prefix_aware").rank_prefill(
        shape(), [candidate("warm", cached=900, queued=2000), candidate("cold", queued=100)]
    )
    assert ids(ranked) == ["cold", "warm"]


def test_prefix_aware_decode_without_room_comes_last() -> None:
    ranked = select_policy("prefix_aware").rank_decode(
        shape(), [candidate("full", cached=900, free=5), candidate("free", requests=20)]
    )
    assert ids(ranked) == ["free", "full"]


def test_prefix_aware_decode_weighs_load_against_transfer() -> None:
    ranked = select_policy("prefix_aware").rank_decode(
        shape(), [candidate("holder", cached=900, requests=30), candidate("idle")]
    )
    assert ids(ranked) == ["idle", "holder"]


@pytest.mark.parametrize("name", ["prefix_aware", "least_loaded"])
def test_ties_are_spread(name: str) -> None:
    policy = select_policy(name)
    firsts = Counter(
        ids(policy.rank_prefill(shape(draw=draw / 300), [candidate("a"), candidate("b"), candidate("c")]))[0]
        for draw in range(300)
    )
    assert set(firsts) == {"a", "b", "c"}
    assert min(firsts.values()) > 50


def test_least_loaded_ignores_prefixes() -> None:
    ranked = select_policy("least_loaded").rank_prefill(
        shape(), [candidate("warm", cached=900, queued=100), candidate("cold")]
    )
    assert ids(ranked) == ["cold", "warm"]


def test_round_robin_takes_turns() -> None:
    policy = select_policy("round_robin")
    candidates = [candidate("b"), candidate("a"), candidate("c")]
    firsts = [ids(policy.rank_prefill(shape(sequence=turn), candidates))[0] for turn in range(4)]
    assert firsts == ["a", "b", "c", "a"]


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_no_candidate_no_choice(name: str) -> None:
    assert select_policy(name).rank_prefill(shape(), []) == []
    assert select_policy(name).rank_decode(shape(), []) == []


def test_unknown_policy_names_those_there_are() -> None:
    with pytest.raises(ConfigError, match="prefix_aware"):
        select_policy("fastest")
