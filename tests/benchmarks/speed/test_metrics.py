"""From the times of tokens to numbers, and from numbers to verdicts."""

from __future__ import annotations

import pytest

from benchmarks.speed import metrics
from benchmarks.speed.request import Answer
from benchmarks.speed.served.goodput import goodput, is_good
from tests.support.speed import make_request

EARLY = Answer(sent_s=0.0, times_s=(1.0, 1.5, 2.0, 2.5))
LATE = Answer(sent_s=0.5, times_s=(2.0, 2.5, 3.0, 3.5))


def test_output_rate_counts_until_the_last_token() -> None:
    assert metrics.output_tokens_per_s([EARLY, LATE], 0) == pytest.approx(8 / 3.5)


def test_a_step_is_measured_while_all_decode() -> None:
    assert metrics.step_ms([EARLY, LATE], 0) == pytest.approx(500)


def test_requests_that_never_decode_together_have_no_step() -> None:
    apart = Answer(sent_s=3.0, times_s=(4.0, 5.0))
    with pytest.raises(ValueError, match="never decoded"):
        metrics.step_ms([EARLY, apart], 0)


def test_first_token_and_time_per_token() -> None:
    assert metrics.ttft_ms([EARLY, LATE, LATE], 0) == pytest.approx(1500)
    assert metrics.tpot_ms([EARLY], 0) == pytest.approx(500)
    assert metrics.prefill_tokens_per_s([EARLY], 256) == pytest.approx(256)


def test_the_first_gap_is_told_in_times_per_token() -> None:
    assert metrics.first_gap_p95([Answer(sent_s=0.0, times_s=(0.0, 3.0, 4.0, 5.0, 6.0))], 0) == pytest.approx(2.0)


def test_goodput_lies_between_the_last_good_rate_and_the_first_bad_one() -> None:
    assert goodput({0.5: 1.0, 1.0: 1.0, 2.0: 0.8}) == pytest.approx(1.5)
    assert goodput({0.5: 1.0, 1.0: 0.95}) == 1.0
    assert goodput({1.0: 0.0}) == pytest.approx(0.1)


def test_a_request_is_good_when_it_is_whole_and_in_time() -> None:
    request = make_request(max_tokens=3)
    assert is_good(Answer(sent_s=0.0, times_s=(0.9, 0.95, 1.0)), request)
    assert not is_good(Answer(sent_s=0.0, times_s=(0.9, 0.95)), request)
    assert not is_good(Answer(sent_s=0.0, times_s=(1.1, 1.15, 1.2)), request)
    assert not is_good(Answer(sent_s=0.0, times_s=(0.9, 0.95, 1.2)), request)
    assert not is_good(None, request)
