from __future__ import annotations

import itertools

import pytest

from common.errors import ConfigError
from slipstream.simulator.synthetic import WORKLOADS, SyntheticTrace, parse_workload
from slipstream.simulator.trace import num_blocks_of


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_is_well_formed_and_repeats_with_its_seed(name: str) -> None:
    trace = SyntheticTrace(parse_workload(f"{name}?requests=500&rate=20&seed=3"))
    requests = list(trace)
    assert len(requests) == 500
    assert requests == list(trace)
    assert requests != list(SyntheticTrace(parse_workload(f"{name}?requests=500&rate=20&seed=4")))
    arrivals = [request.arrival_s for request in requests]
    assert arrivals == sorted(arrivals)
    assert all(
        len(request.block_ids) == num_blocks_of(request.num_tokens, trace.block_size) and request.num_new_tokens > 0
        for request in requests
    )


def test_the_rate_is_that_of_requests() -> None:
    requests = list(SyntheticTrace(parse_workload("multi_turn?requests=4000&rate=20&think_s=1&turns=3")))
    assert 4000 / requests[-1].arrival_s == pytest.approx(20, rel=0.15)


def test_a_turn_begins_with_all_full_blocks_of_the_one_before() -> None:
    workload = parse_workload("multi_turn?requests=4&rate=0.001&turns=1000&think_s=0.001&prefixes=1&prefix_tokens=100")
    requests = list(SyntheticTrace(workload))
    for before, after in itertools.pairwise(requests):
        num_full = before.num_tokens // workload.block_size
        shared = [a == b for a, b in zip(before.block_ids, after.block_ids, strict=False)]
        assert shared == [True] * num_full + [False] * (len(before.block_ids) - num_full)
        assert after.num_tokens > before.num_tokens + before.num_new_tokens


def test_groups_share_their_prefix_and_nothing_else() -> None:
    requests = list(SyntheticTrace(parse_workload("groups?requests=50&prefixes=2&prefix_tokens=640")))
    prefixes = {request.block_ids[:10] for request in requests}
    tails = [block for request in requests for block in request.block_ids[10:]]
    assert len(prefixes) == 2
    assert len(tails) == len(set(tails))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "trace: no workload 'nothing'; there are groups, system_prompts, multi_turn, agents"),
        ("agents?size=3", "size: is no parameter of a workload; known: requests, rate, seed"),
        ("agents?requests=many", "requests: must be a whole number, is 'many'"),
        ("agents?rate=0", "rate: must be above 0, is 0"),
        ("agents?turns=0.5", "turns: must be at least 1 and at most 100,000, is 0.5"),
        ("agents?turns=nan", "turns: must be at least 1 and at most 100,000, is nan"),
    ],
)
def test_an_error_names_the_field(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_workload(text)
    assert str(caught.value).startswith(message)
