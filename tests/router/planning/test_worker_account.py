"""Work is counted once: by the router's charge until a report has it, by the report from then on."""

from __future__ import annotations

import dataclasses

import pytest

from router.planning.worker_account import WorkerAccount
from tests.support.fleet_books import IDLE, account


def report(one: WorkerAccount, now_s: float, **load: float) -> None:
    one.take_report(dataclasses.replace(IDLE, **load), now_s)  # type: ignore[arg-type]


def test_a_charge_counts_until_a_report_has_it() -> None:
    one = account("p0")
    charge = one.charge(2.0, 100)
    assert one.queue_s(0.0) == 2.0
    one.submitted(charge)
    report(one, 0.1)  # made before the submit arrived
    assert one.queue_s(0.1) == 2.0
    assert one.num_requests == 1
    report(one, 0.2, queue_s=1.5, num_submits_taken=1, num_waiting=1)
    assert one.queue_s(0.2) == 1.5
    assert one.num_requests == 1


def test_a_leg_that_ends_takes_its_charge_along_once() -> None:
    one = account("p0")
    first, second = one.charge(2.0, 100), one.charge(1.0, 50)
    one.submitted(first)
    one.discharge(first)
    one.discharge(first)
    assert one.queue_s(0.0) == pytest.approx(1.0)
    one.submitted(second)
    report(one, 0.1, num_submits_taken=1)
    assert one.queue_s(0.1) == pytest.approx(1.0)
    report(one, 0.2, num_submits_taken=2)
    assert one.queue_s(0.2) == 0.0
    assert one.num_queued_tokens == 0


def test_a_leg_that_was_discharged_before_it_was_sent_leaves_nothing() -> None:
    one = account("p0")
    charge = one.charge(2.0, 100)
    one.discharge(charge)
    one.submitted(charge)
    assert one.queue_s(0.0) == 0.0
    assert one.num_requests == 0


def test_a_reported_queue_shrinks_as_time_passes() -> None:
    one = account("p0", queue_s=3.0)
    assert one.queue_s(1.0) == 2.0
    assert one.queue_s(9.0) == 0.0


def test_a_broken_stream_voids_what_was_sent() -> None:
    one = account("p0")
    one.submitted(one.charge(2.0, 100))
    kept = one.charge(1.0, 50)
    one.reset()
    assert one.queue_s(0.0) == pytest.approx(1.0)
    one.submitted(kept)
    report(one, 0.1, num_submits_taken=1)
    assert one.queue_s(0.1) == 0.0


def test_utilization_is_the_share_of_time_in_steps() -> None:
    one = account("p0")
    for second in range(1, 600):
        report(one, float(second), busy_s=0.25 * second)
    assert one.utilization == pytest.approx(0.25, abs=0.01)


def test_work_is_what_it_did_of_late_and_what_it_has_to_do() -> None:
    one, rested = account("p0"), account("p1")
    for second in range(1, 61):
        report(one, float(second), busy_s=0.5 * second)
        report(rested, float(second))
    assert one.work_s(60.0) == pytest.approx(30.0, rel=0.05)
    assert rested.work_s(60.0) == 0.0
    one.charge(5.0, 1)
    assert one.work_s(60.0) == pytest.approx(35.0, rel=0.05)


def test_a_restarted_counter_is_no_negative_work() -> None:
    one = account("p0", busy_s=100.0)
    report(one, 1.0, busy_s=0.5)
    assert one.utilization >= 0.0
    assert one.work_s(1.0) >= 0.0


def test_the_rate_into_a_worker_is_learned_from_what_came() -> None:
    one = account("d0")
    for _ in range(50):
        one.note_transfer(10 * 2**20, 0.1)
    assert one.receive_bytes_per_s == pytest.approx(100 * 2**20, rel=0.05)
    one.note_transfer(1000, 1.0)  # latency
    one.note_transfer(10 * 2**20, 0.0)  # a worker of the version before does not tell
    assert one.receive_bytes_per_s == pytest.approx(100 * 2**20, rel=0.05)
