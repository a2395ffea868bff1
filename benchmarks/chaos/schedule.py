"""The rounds of a run, in an order that follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from benchmarks.chaos.cell import Stage, Strike
from benchmarks.chaos.coverage import Coverage


class Setting(Enum):
    """How requests are placed before the strike, and the stages that they can be in then."""

    UNDER_WAY = frozenset(Stage) - {Stage.QUEUED, Stage.DRAINING}
    IN_QUEUE = frozenset({Stage.QUEUED})
    DRAINING = frozenset({Stage.DRAINING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`number` counts from 1; what chance decides in the round follows from it and the seed. `attempt`: how often,
    from 0, the fault was tried in this setting before."""

    number: int
    attempt: int
    strike: Strike
    setting: Setting


def turns(seed: int, strikes: Sequence[Strike], coverage: Coverage, max_passes: int) -> Iterator[Turn]:
    """Each fault once in each setting, shuffled; then again where it has missed a stage."""
    source = random.Random(f"turns {seed}")
    number = 0
    for attempt in range(max_passes):
        order = [(strike, setting) for strike in strikes for setting in Setting]
        source.shuffle(order)
        for strike, setting in order:
            if coverage.missing(strike) & setting.value:
                number += 1
                yield Turn(number=number, attempt=attempt, strike=strike, setting=setting)
