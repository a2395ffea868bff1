"""A worker that has measured little is not slow for good."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.cost import StepTimes
from router.planning.candidates import STEADY_STEPS, mean_times, steadied

FAST = StepTimes(
    step_s=0.01,
    prefill_token_s=1e-4,
    prefill_pair_s=1e-8,
    decode_request_s=1e-3,
    decode_kv_token_s=1e-6,
    num_steps=10_000,
)


def test_a_few_steps_count_little_and_many_alone() -> None:
    contended = replace(FAST, step_s=0.1, num_steps=2)
    fleet = mean_times([FAST, FAST, FAST, contended])
    assert steadied(contended, fleet).step_s == pytest.approx(fleet.step_s, rel=0.05)
    grown = replace(contended, num_steps=STEADY_STEPS)
    assert steadied(grown, fleet) == grown


def test_times_that_are_given_stay() -> None:
    given = replace(FAST, num_steps=0)
    assert steadied(given, mean_times([replace(FAST, step_s=1.0)])) == given
