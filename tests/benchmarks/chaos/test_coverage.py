"""The table tells what was struck, and what not yet."""

from __future__ import annotations

from benchmarks.chaos.cell import Fault, Stage, Strike, Target
from benchmarks.chaos.coverage import Coverage
from benchmarks.chaos.schedule import Setting, turns

KILL = Strike(Fault.KILL, Target.DECODE)
CUT = Strike(Fault.CUT, Target.LINK)


def test_a_cell_is_a_gap_until_a_request_was_struck_in_it() -> None:
    coverage = Coverage([KILL, CUT], [Stage.MAPPED, Stage.LATE])
    coverage.add(KILL, [(Stage.MAPPED, 2)])
    assert coverage.gaps == [(KILL, Stage.LATE), (CUT, Stage.MAPPED), (CUT, Stage.LATE)]
    coverage.add(KILL, [(Stage.LATE, 1)])
    coverage.add(CUT, [(Stage.MAPPED, 1), (Stage.LATE, 1)])
    assert coverage.gaps == []


def test_the_table_shows_counts_and_gaps() -> None:
    coverage = Coverage([KILL, CUT], [Stage.MAPPED, Stage.LATE])
    coverage.add(KILL, [(Stage.MAPPED, 12)])
    assert coverage.table().splitlines() == [
        "             mapped  late",
        "kill-decode      12     -",
        "cut-link          -     -",
    ]


def test_a_worker_that_is_drained_is_not_struck_while_it_drains() -> None:
    drain = Strike(Fault.DRAIN, Target.DECODE)
    coverage = Coverage([drain], [Stage.DRAINING])
    assert coverage.gaps == []
    assert coverage.table().splitlines()[1] == "drain-decode         ."


def test_the_same_seed_gives_the_same_turns() -> None:
    orders = [[*turns(seed, [KILL, CUT], Coverage([KILL, CUT]), 2)] for seed in (4, 4, 5)]
    assert orders[0] == orders[1] != orders[2]
    assert len(orders[0]) == 12
    assert [turn.number for turn in orders[0]] == [*range(1, 13)]


def test_only_what_is_missing_comes_again() -> None:
    coverage = Coverage([KILL, CUT])
    coverage.add(KILL, [(stage, 1) for stage in Stage if stage is not Stage.OFFERED])
    left = {(turn.strike, turn.setting) for turn in turns(1, [KILL, CUT], coverage, 1)}
    assert left == {(KILL, Setting.UNDER_WAY), *((CUT, setting) for setting in Setting)}
