"""A rate that holds on average, and what may be overdrawn."""

from __future__ import annotations

import pytest

from router.access.rate_bucket import RateBucket


def test_a_second_s_worth_is_there_at_once_and_then_the_rate() -> None:
    bucket = RateBucket(10, now_s=0.0)
    for _ in range(10):
        assert bucket.wait_s(0.0) == 0
        bucket.take(1, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(0.1)
    assert bucket.wait_s(0.1) == pytest.approx(0.0)


def test_a_rate_below_one_lets_one_through() -> None:
    bucket = RateBucket(0.1, now_s=0.0)
    assert bucket.wait_s(0.0) == 0
    bucket.take(1, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(10.0)


def test_what_was_overdrawn_is_paid_back_first() -> None:
    bucket = RateBucket(100, now_s=0.0)
    bucket.take(1100, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(10.01)
    assert bucket.wait_s(10.02) == 0


def test_waiting_saves_no_more_than_a_second_s_worth() -> None:
    bucket = RateBucket(10, now_s=0.0)
    bucket.take(10, 1000.0)
    assert bucket.wait_s(1000.0) > 0


def test_a_new_rate_holds_at_once() -> None:
    bucket = RateBucket(1000, now_s=0.0)
    bucket.set_rate(1, 0.0)
    bucket.take(1, 0.0)
    assert bucket.wait_s(0.0) == pytest.approx(1.0)
