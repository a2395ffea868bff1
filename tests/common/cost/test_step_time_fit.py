"""The fit finds the coefficients that made the steps, follows a change, and is not thrown by interruptions."""

from __future__ import annotations

import random

import pytest

from common.cost import DecodeWork, PrefillWork, StepTimeFit, StepTimes

PRIOR = StepTimes(step_s=1e-3, prefill_token_s=1e-5, prefill_pair_s=1e-9, decode_request_s=1e-4, decode_kv_token_s=1e-7)
TRUE = StepTimes(step_s=6e-3, prefill_token_s=3e-5, prefill_pair_s=5e-9, decode_request_s=5e-5, decode_kv_token_s=4e-8)


def mixed_work(draw: random.Random) -> tuple[PrefillWork, DecodeWork]:
    prefill = PrefillWork()
    if draw.random() < 0.5:
        prefill = PrefillWork.of(draw.randint(1, 4096), draw.choice([0, draw.randint(0, 60_000)]))
    num_requests = draw.randint(0, 64)
    return prefill, DecodeWork(num_requests, num_requests * draw.randint(1, 8000))


def run_steps(fit: StepTimeFit, times: StepTimes, draw: random.Random, num_steps: int, noise: float) -> None:
    for _ in range(num_steps):
        work = mixed_work(draw)
        fit.add(*work, times.seconds(*work) * draw.uniform(1 - noise, 1 + noise))


def largest_error(fit: StepTimeFit, times: StepTimes, draw: random.Random) -> float:
    fitted = fit.times()
    works = [mixed_work(draw) for _ in range(500)]
    return max(abs(fitted.seconds(*work) / times.seconds(*work) - 1) for work in works)


def test_finds_what_made_the_steps() -> None:
    draw, fit = random.Random(1), StepTimeFit(PRIOR)
    run_steps(fit, TRUE, draw, 1000, noise=0.1)
    assert largest_error(fit, TRUE, draw) < 0.1
    assert fit.times().num_steps == 1000


def test_follows_a_worker_that_becomes_slower() -> None:
    draw, fit = random.Random(2), StepTimeFit(PRIOR)
    run_steps(fit, PRIOR, draw, 2000, noise=0.1)
    run_steps(fit, TRUE, draw, 3000, noise=0.1)
    assert largest_error(fit, TRUE, draw) < 0.15


def test_interrupted_steps_do_not_throw_it() -> None:
    draw, fit = random.Random(3), StepTimeFit(PRIOR)
    run_steps(fit, TRUE, draw, 500, noise=0.1)
    for _ in range(5):
        work = mixed_work(draw)
        fit.add(*work, 10.0)
    run_steps(fit, TRUE, draw, 500, noise=0.1)
    assert largest_error(fit, TRUE, draw) < 0.25


def test_a_worker_that_only_decodes_keeps_the_prior_of_prefill() -> None:
    draw, fit = random.Random(4), StepTimeFit(TRUE)
    for _ in range(20_000):
        decode = DecodeWork(draw.randint(1, 64), draw.randint(100, 400_000))
        fit.add(PrefillWork(), decode, TRUE.seconds(PrefillWork(), decode) * draw.uniform(0.9, 1.1))
    assert fit.times().prefill_s(2048, 0, 2048) == pytest.approx(TRUE.prefill_s(2048, 0, 2048), rel=0.1)
    run_steps(fit, TRUE, draw, 50, noise=0.1)
    assert largest_error(fit, TRUE, draw) < 0.3


def test_a_prompt_costs_what_its_chunks_cost() -> None:
    whole = TRUE.prefill_s(4096, 1000, 1024)
    chunks = sum(TRUE.seconds(PrefillWork.of(1024, 1000 + 1024 * chunk), DecodeWork()) for chunk in range(4))
    assert whole == pytest.approx(chunks)


def test_refuses_what_is_no_time() -> None:
    with pytest.raises(ValueError, match="prefill_token_s"):
        StepTimes(step_s=0, prefill_token_s=float("nan"), prefill_pair_s=0, decode_request_s=0, decode_kv_token_s=0)
