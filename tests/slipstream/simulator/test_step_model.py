from __future__ import annotations

import pytest

from common.cost import PrefillWork
from slipstream.simulator.profile import load_profile
from slipstream.simulator.step_model import Line, num_steps_within, prefill_s, span_s

LINES = [
    (Line(0.01, 1e-6),),
    (Line(0.02, 1e-6), Line(0.001, 5e-6)),
    (Line(0.001, 5e-6), Line(0.02, 1e-6)),
    (Line(0.02, 1e-6), Line(0.001, 1e-7)),
]


@pytest.mark.parametrize("lines", LINES)
@pytest.mark.parametrize("num_steps", [0, 1, 2, 500, 3000])
def test_many_steps_at_once_take_what_each_would(lines: tuple[Line, ...], num_steps: int) -> None:
    one_by_one = sum(max(line.at(1000 + 7 * step) for line in lines) for step in range(num_steps))
    assert span_s(lines, 7, 1000, num_steps) == pytest.approx(one_by_one)


@pytest.mark.parametrize("lines", LINES)
def test_the_steps_until_a_moment(lines: tuple[Line, ...]) -> None:
    for num_steps in (1, 2, 77, 400):
        seconds = span_s(lines, 7, 1000, num_steps)
        assert num_steps_within(lines, 7, 1000, seconds - 1e-9, 1000) == num_steps
        assert num_steps_within(lines, 7, 1000, seconds + 1e-9, 1000) == num_steps + 1
    assert num_steps_within(lines, 7, 1000, 1e9, 1000) == 1000


def test_a_roofline_step_is_bound_by_memory_or_by_arithmetic() -> None:
    model = load_profile("h100-llama-3.1-8b").model
    weights_s = 2 * 8.03e9 / (0.8 * 3.35e12)
    assert model.prefill_step_s(PrefillWork.of(1, 0)) == pytest.approx(weights_s + 0.002)
    linear_s = 2 * 8.03e9 * 8192 / (0.55 * 989e12)
    attention_s = 4 * 32 * 4096 * (8192 * 8193 / 2) / (0.4 * 989e12)
    assert model.prefill_step_s(PrefillWork.of(8192, 0)) == pytest.approx(linear_s + attention_s + 0.002)
    memory, arithmetic = model.decode_lines(64)
    assert memory.at(64 * 4000) == pytest.approx(weights_s + 64 * 4000 * 131072 / (0.8 * 3.35e12) + 0.002)
    assert arithmetic.at(64 * 4000) < memory.at(64 * 4000)


def test_a_prompt_is_computed_in_chunks_and_at_least_its_last_token() -> None:
    model = load_profile("h100-llama-3.1-8b").model
    whole = model.prefill_step_s(PrefillWork.of(100, 0)) + model.prefill_step_s(PrefillWork.of(50, 100))
    assert prefill_s(model, 150, 0, 100) == pytest.approx(whole)
    assert prefill_s(model, 150, 150, 100) == pytest.approx(model.prefill_step_s(PrefillWork.of(1, 149)))
