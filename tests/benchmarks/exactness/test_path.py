"""A case whose requests did not take their path must fail, though every token be right."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.exactness.case import Cached, Case, FleetSpec
from benchmarks.exactness.counters import Counters
from benchmarks.exactness.fleet import Ask, Served, Traffic
from benchmarks.exactness.path import path_faults
from benchmarks.exactness.reference import Reference
from router.generation import RouteTaken, Usage

NUM_PROMPT_TOKENS = 50  # 3 full blocks of 16, and 2 tokens of a fourth
WORKERS = ("prefill-0", "decode-0")
SPLIT = FleetSpec(name="split")
BOTH = FleetSpec(name="both", both=True)
COLD = Case(name="cold")
CACHED = Case(name="cached", prefill_cached=Cached.ALL, decode_cached=Cached.ALL)
PREEMPTED = Case(name="preempted", preempts=True, prefill_cached=Cached.UNKNOWN, decode_cached=Cached.UNKNOWN)

REFERENCE = Reference(
    name="p", prompt_token_ids=tuple(range(NUM_PROMPT_TOKENS)), token_ids=(1, 2), gaps=(1.0, 1.0), runner_ups=(3, 4)
)
COLD_SERVED = Served(
    ask=Ask(reference=REFERENCE, num_new_tokens=2),
    choices=((1, 2),),
    prompt_token_ids=REFERENCE.prompt_token_ids,
    usage=Usage(prompt_tokens=NUM_PROMPT_TOKENS, cached_tokens=0, generated_tokens=2),
    route=RouteTaken(
        prefill_worker="prefill-0",
        decode_worker="decode-0",
        attempts=1,
        transferred_bytes=4000,
        transferred_blocks=4,
        decode_cached_blocks=0,
        preemptions=0,
    ),
)
COLD_TRAFFIC = Traffic(
    served=(COLD_SERVED,),
    prefill=Counters(sent_bytes=4000, sent_blocks=4, num_generated_tokens=1, num_prefilled_tokens=NUM_PROMPT_TOKENS),
    decode=Counters(received_bytes=4000, received_blocks=4, num_generated_tokens=1),
    peak_running=1,
)


def faults(traffic: Traffic, case: Case = COLD, spec: FleetSpec = SPLIT) -> list[str]:
    return path_faults(spec, case, traffic, (None, "decode-0") if spec.both else WORKERS)


def changed(*, usage: dict[str, int] | None = None, route: dict[str, object] | None = None) -> Traffic:
    served = replace(
        COLD_SERVED,
        usage=replace(COLD_SERVED.usage, **(usage or {})),
        route=replace(COLD_SERVED.route, **(route or {})),  # type: ignore[arg-type]
    )
    return replace(COLD_TRAFFIC, served=(served,))


def test_the_cold_path_is_right() -> None:
    assert faults(COLD_TRAFFIC) == []


@pytest.mark.parametrize(
    ("usage", "route", "expected"),
    [
        ({"prompt_tokens": 49}, {}, "49 prompt tokens"),
        ({"cached_tokens": 16}, {}, "16 cached tokens, not 0"),
        ({"generated_tokens": 3}, {}, "3 generated tokens"),
        ({}, {"prefill_worker": None}, "prefilled on None"),
        ({}, {"decode_worker": "prefill-0"}, "decoded on 'prefill-0'"),
        ({}, {"transferred_blocks": 3}, "3 blocks sent and 0 not sent of the prompt's 4"),
        ({}, {"transferred_blocks": 3, "decode_cached_blocks": 1}, "decode held 1 blocks"),
        ({}, {"transferred_bytes": 0}, "0 bytes in 4 blocks"),
    ],
)
def test_a_wrong_usage_or_route_is_a_fault(usage: dict[str, int], route: dict[str, object], expected: str) -> None:
    assert any(expected in fault for fault in faults(changed(usage=usage, route=route)))


def test_other_prompt_tokens_are_a_fault() -> None:
    served = replace(COLD_SERVED, prompt_token_ids=(1, 2))
    assert any("not the reference's" in fault for fault in faults(replace(COLD_TRAFFIC, served=(served,))))


@pytest.mark.parametrize(
    ("side", "name", "expected"),
    [
        ("prefill", "sent_blocks", "decode received 4"),
        ("decode", "received_bytes", "decode received 4"),
        ("prefill", "num_prefilled_tokens", "prompt tokens computed, not 50"),
        ("decode", "num_prefilled_tokens", "decode computed"),
        ("prefill", "prefix_hit_tokens", "found in the prefix cache"),
        ("decode", "num_generated_tokens", "counted as generated"),
        ("decode", "num_preemptions", "preemptions, though"),
    ],
)
def test_a_wrong_counter_is_a_fault(side: str, name: str, expected: str) -> None:
    counters = getattr(COLD_TRAFFIC, side)
    traffic = replace(COLD_TRAFFIC, **{side: replace(counters, **{name: getattr(counters, name) + 1})})
    assert any(expected in fault for fault in faults(traffic))


def test_a_cache_that_was_not_used_is_a_fault() -> None:
    found = faults(COLD_TRAFFIC, CACHED)
    assert any("0 cached tokens, not 48" in fault for fault in found)
    assert any("decode held 0 blocks" in fault for fault in found)


def test_a_transfer_in_role_both_is_a_fault() -> None:
    found = faults(COLD_TRAFFIC, COLD, BOTH)
    assert any("in role both" in fault for fault in found)


def test_no_preemption_is_a_fault_of_a_preempting_case() -> None:
    found = faults(COLD_TRAFFIC, PREEMPTED)
    assert "nothing was preempted" in found
    assert "no request was handed back to the router" in found


SHORT_WITH_SWAP = replace(SPLIT, short_of_blocks=True, swaps=True)
SWAPPED_TRAFFIC = replace(
    COLD_TRAFFIC, decode=replace(COLD_TRAFFIC.decode, num_swap_outs=1, swapped_out_blocks=4, swapped_in_blocks=3)
)
SWAPPED = replace(PREEMPTED, prefill_cached=Cached.NOTHING, decode_cached=Cached.NOTHING)


def test_a_swap_is_right_where_it_is_expected_alone() -> None:
    assert faults(SWAPPED_TRAFFIC, SWAPPED, SHORT_WITH_SWAP) == []
    assert any("swapped out, though" in fault for fault in faults(SWAPPED_TRAFFIC))
    assert any("swapped out, though" in fault for fault in faults(SWAPPED_TRAFFIC, PREEMPTED))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_swap_outs": 0}, "nothing was swapped out"),
        ({"swapped_in_blocks": 0}, "nothing was swapped in"),
        ({"num_preemptions": 1}, "preemptions, though"),
        ({"num_generated_tokens": 2}, "counted as generated"),
        ({"num_prefilled_tokens": 1}, "decode computed"),
    ],
)
def test_a_swap_that_lost_something_is_a_fault(changes: dict[str, int], expected: str) -> None:
    traffic = replace(SWAPPED_TRAFFIC, decode=replace(SWAPPED_TRAFFIC.decode, **changes))
    assert any(expected in fault for fault in faults(traffic, SWAPPED, SHORT_WITH_SWAP))


def test_16_at_once_must_be_seen_together() -> None:
    found = faults(COLD_TRAFFIC, replace(COLD, num_at_once=16))
    assert any("seen in one batch" in fault for fault in found)
