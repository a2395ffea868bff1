from __future__ import annotations

from dataclasses import replace

import pytest

from common.cost import UNMEASURED
from common.cost.map_time import ANSWER_S, MARGIN
from common.engine.results import BlocksComputed, StepResult
from common.request import LegKey, RequestId
from common.worker.engine_thread import StepReport
from common.worker.map_timing import ASSUMED_BYTES_PER_S, WEIGHT, MapTiming
from tests.support.engine import HashEngine, tiny_spec

SPEC = tiny_spec()
CHUNK = 4 * SPEC.block_size
NUM_TOKENS = 4 * CHUNK
BYTES_PER_TOKEN = sum(group.bytes_per_block for group in SPEC.groups) / SPEC.block_size
KEY = LegKey(RequestId("request"), 0)
TOKEN_S = 1e-2
TIMES = replace(UNMEASURED, step_s=0.0, prefill_token_s=TOKEN_S, prefill_pair_s=0.0)


def report(*upcoming: LegKey) -> StepReport:
    load = replace(HashEngine().engine.load(), step_times=TIMES)
    return StepReport(result=StepResult(), cache_events=[], load=load, tallies={}, upcoming=upcoming)


def computed(first: int, count: int) -> BlocksComputed:
    return BlocksComputed(
        request_id=KEY.request_id,
        attempt=KEY.attempt,
        choice_indices=(0,),
        group_id=0,
        first_logical_block=first,
        block_ids=tuple(range(count)),
    )


def timing(num_expected_tokens: int = 0) -> MapTiming:
    timing = MapTiming(SPEC, CHUNK)
    timing.watch(KEY, NUM_TOKENS, num_expected_tokens)
    return timing


def wait_s(num_left: int, num_hidden: int, bytes_per_s: float = ASSUMED_BYTES_PER_S) -> float:
    return num_left * TOKEN_S - MARGIN * num_hidden * BYTES_PER_TOKEN / bytes_per_s - ANSWER_S


def test_a_leg_that_waits_is_judged_when_the_next_step_is_to_reach_it_by_what_is_expected_to_be_cached() -> None:
    assert timing().due(report()) == []
    assert timing().due(report(KEY)) == [(KEY, pytest.approx(wait_s(NUM_TOKENS, 3 * CHUNK)))]
    assert timing(3 * CHUNK).due(report(KEY)) == [(KEY, pytest.approx(wait_s(CHUNK, 3 * CHUNK)))]
    assert timing(2 * NUM_TOKENS).due(report(KEY)) == [(KEY, 0.0)]


def test_a_leg_that_is_computed_is_judged_anew_with_each_report() -> None:
    judged = timing(3 * CHUNK)
    judged.computed(KEY, computed(0, 4))
    assert judged.due(report()) == [(KEY, pytest.approx(wait_s(3 * CHUNK, 3 * CHUNK)))]
    judged.computed(KEY, computed(4, 12))
    assert judged.due(report()) == [(KEY, 0.0)]
    judged.forget(KEY)
    assert judged.due(report(KEY)) == []


def test_transfers_tell_how_long_the_next_one_takes() -> None:
    judged = timing()
    rate = 10 * BYTES_PER_TOKEN  # ten tokens a second: slower than prefill
    for _ in range(200):
        judged.moved(2**20, 2**20 / rate)
    assert judged.due(report(KEY)) == [(KEY, 0.0)]
    judged = timing()
    judged.moved(2**20 - 1, 100.0)  # too small to tell
    assert judged.due(report(KEY)) == [(KEY, pytest.approx(wait_s(NUM_TOKENS, 3 * CHUNK)))]
    judged.moved(2**20, 2**20 / (3 * ASSUMED_BYTES_PER_S))
    faster = ASSUMED_BYTES_PER_S * (1 + 2 * WEIGHT)
    assert judged.due(report(KEY)) == [(KEY, pytest.approx(wait_s(NUM_TOKENS, 3 * CHUNK, faster)))]
