"""Sides follow the workers' states; few candidates stand for a large fleet."""

from __future__ import annotations

import dataclasses
import random

import pytest

from common.config import Role
from common.request import WorkerId
from router.planning.hash_ring import HashRing
from tests.support.fleet_books import account, roster

NOBODY: frozenset[str] = frozenset()


def test_a_side_holds_the_usable_workers_of_its_role() -> None:
    one, other = account("p0"), account("d0", Role.DECODE)
    books = roster(one, other)
    assert [each.info.worker_id for each in books.side(Role.PREFILL)] == ["p0"]
    one.available = False
    books.update(one)
    assert len(books.side(Role.PREFILL)) == 0
    one.available = True
    one.info = dataclasses.replace(one.info, role=Role.DECODE)
    books.update(one)
    assert {each.info.worker_id for each in books.side(Role.DECODE)} == {"p0", "d0"}
    books.remove(WorkerId("p0"))
    books.remove(WorkerId("p0"))
    assert books.find("p0") is None


def test_the_version_counts_who_comes_and_goes_and_nothing_else() -> None:
    one, other = account("p0"), account("d0", Role.DECODE)
    books = roster(one, other)
    known = books.version
    books.update(one)
    books.remove(WorkerId("nobody"))
    assert books.version == known
    one.doubtful = True
    books.update(one)
    assert books.version == known + 1
    one.doubtful = False
    books.update(one)
    books.remove(WorkerId("p0"))
    assert books.version == known + 3
    books.update(account("d0", Role.DECODE))  # another life
    assert books.version == known + 4
    other = account("d0", Role.DECODE)
    books.update(other)
    other.answers = False
    books.update(other)
    books.update(other)
    assert books.version == known + 6


def select(
    books_size: int, *, exclude: frozenset[str] = NOBODY, sequence: int = 0, mute: frozenset[str] = NOBODY
) -> list[str]:
    books = roster(*(account(f"p{index:03}") for index in range(books_size)))
    for one in [*books]:
        one.answers = one.info.worker_id not in mute
        books.update(one)
    side = books.side(Role.PREFILL)
    chosen = side.select(
        depths={WorkerId("p007"): 64, WorkerId("p003"): 640, WorkerId("elsewhere"): 9999},
        homes=side.homes(b"prefix"),
        exclude=exclude,
        sequence=sequence,
        max_candidates=16,
        draw=random.Random(0),
    )
    return [each.info.worker_id for each in chosen]


def test_a_small_fleet_is_looked_at_whole() -> None:
    assert len(select(16)) == 16
    assert "p003" not in select(16, exclude=frozenset({"p003"}))


def test_of_a_large_fleet_holders_homes_turn_and_some_by_chance() -> None:
    chosen = select(200, sequence=311)
    assert len(chosen) == len(set(chosen)) == 10  # 2 holders, 3 homes, 1 turn, 4 by chance
    assert chosen[:2] == ["p003", "p007"]
    assert "p111" in chosen  # whose turn it is
    assert len(select(200, exclude=frozenset({"p003", "p111"}), sequence=311)) >= 8
    assert {"p003", "p111"}.isdisjoint(select(200, exclude=frozenset({"p003", "p111"}), sequence=311))


def test_everyone_excluded_leaves_nobody() -> None:
    everyone = frozenset(f"p{index:03}" for index in range(20))
    assert select(20, exclude=everyone) == []


@pytest.mark.parametrize("books_size", [10, 200])
def test_whoever_gave_no_answer_is_left_out(books_size: int) -> None:
    mute = frozenset({"p003", "p005"})
    chosen = select(books_size, sequence=5, mute=mute)  # a holder of the prefix, and whose turn it is
    assert len(chosen) >= 8
    assert mute.isdisjoint(chosen)


@pytest.mark.parametrize("books_size", [10, 200])
def test_where_nobody_else_is_left_those_without_an_answer_are_asked(books_size: int) -> None:
    everyone = frozenset(f"p{index:03}" for index in range(books_size))
    assert len(select(books_size, mute=everyone)) >= 9
    assert select(books_size, mute=everyone - {"p004"}, exclude=frozenset({"p004"})) != []
    assert select(books_size, mute=everyone - {"p004"}) == ["p004"]


def test_a_worker_that_answers_again_takes_part_again() -> None:
    one, other = account("p0"), account("p1")
    books = roster(one, other)
    for answers, chosen in ((False, ["p1"]), (True, ["p0", "p1"])):
        one.answers = answers
        books.update(one)
        found = books.side(Role.PREFILL).select(
            depths={}, homes=(), exclude=NOBODY, sequence=0, max_candidates=16, draw=random.Random(0)
        )
        assert [each.info.worker_id for each in found] == chosen


def test_turns_go_round() -> None:
    books = roster(account("p0"), account("p1"), account("p2"))
    side = books.side(Role.PREFILL)
    assert [side.turn_of(WorkerId("p1"), sequence) for sequence in range(4)] == [1, 0, 2, 1]


def test_a_newcomer_starts_with_the_mean_of_work() -> None:
    books = roster(account("p0", queue_s=4.0), account("p1", queue_s=2.0))
    assert books.mean_work_s(Role.PREFILL, 0.0) == 3.0
    assert books.mean_work_s(Role.DECODE, 0.0) == 0.0


def test_the_ring_moves_only_what_it_must() -> None:
    ring = HashRing()
    for index in range(20):
        ring.add(WorkerId(f"p{index}"))
    keys = [index.to_bytes(4, "little") for index in range(2000)]
    before = {key: ring.successors(key, 2) for key in keys}
    assert all(len(set(homes)) == 2 for homes in before.values())
    ring.remove(WorkerId("p7"))
    for key in keys:
        expected = before[key][0] if before[key][0] != "p7" else before[key][1]
        assert ring.successors(key, 1) == [expected]
    moved = sum(before[key][0] == "p7" for key in keys)
    assert 0.5 < moved / (len(keys) / 20) < 1.7
