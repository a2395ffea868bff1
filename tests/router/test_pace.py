"""What waits are foretold by."""

from __future__ import annotations

import pytest

from router.pace import MIN_TURNS, WINDOW_S, Pace


def paced(turn_s: float, num_turns: int) -> Pace:
    pace = Pace()
    pace.begin(100.0)
    for number in range(1, num_turns + 1):
        pace.note_turn(100.0 + number * turn_s)
    return pace


def test_nothing_is_said_of_too_few_turns() -> None:
    assert paced(0.5, MIN_TURNS - 1).turn_s(110.0) is None


def test_the_pace_is_the_mean_of_bursts() -> None:
    pace = Pace()
    pace.begin(100.0)
    for burst in range(1, 9):
        for _ in range(8):
            pace.note_turn(100.0 + burst)
    assert pace.turn_s(108.0) == pytest.approx(1 / 8, rel=0.2)


def test_a_changed_pace_is_learned_in_the_time_of_a_window() -> None:
    pace = paced(0.01, 1000)
    for number in range(1, MIN_TURNS + 1):
        pace.note_turn(110.0 + number * 1.0)
    assert pace.turn_s(110.0 + MIN_TURNS) == pytest.approx(1.0, rel=0.1)
    assert MIN_TURNS * 1.0 > WINDOW_S


def test_a_queue_that_stands_still_is_seen_before_its_next_turn() -> None:
    pace = paced(0.1, 50)
    assert pace.turn_s(105.0) == pytest.approx(0.1)
    later = pace.turn_s(165.0)
    assert later is not None and later > 1.0


def test_time_in_which_nobody_waits_does_not_count() -> None:
    pace = paced(0.1, 50)
    pace.begin(1000.0)
    pace.note_turn(1000.1)
    assert pace.turn_s(1000.1) == pytest.approx(0.1)


def test_another_fleet_has_another_pace() -> None:
    version = 0
    pace = Pace(lambda: version)
    pace.begin(100.0)
    for number in range(1, MIN_TURNS + 1):
        pace.note_turn(100.0 + number)
        pace.note_answer(30.0, 1.0, 100)
    assert pace.turn_s(116.0) == pytest.approx(1.0)
    version = 1  # a worker that hung is known to be lost
    pace.note_turn(146.0)
    assert pace.turn_s(146.0) is None
    for number in range(1, MIN_TURNS + 1):
        pace.note_turn(146.0 + number * 0.1)
    assert pace.turn_s(146.0 + MIN_TURNS * 0.1) == pytest.approx(0.1)
    assert pace.answer_s(least_tokens=1, most_tokens=None) == 0.0


def test_an_answer_takes_as_long_as_those_before() -> None:
    pace = Pace()
    for _ in range(50):
        pace.note_answer(0.2, 0.01, 100)
    assert pace.answer_s(least_tokens=1, most_tokens=None) == pytest.approx(0.2 + 99 * 0.01)
    assert pace.answer_s(least_tokens=1, most_tokens=11) == pytest.approx(0.3)
    assert pace.answer_s(least_tokens=201, most_tokens=300) == pytest.approx(2.2)
