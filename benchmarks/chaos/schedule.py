"""The rounds of a run, in an order that follows from the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.chaos.cell import Stage, Strike
from benchmarks.chaos.coverage import Coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """`number` counts from 1; what chance decides in the round follows from it and the seed.

    `in_queue`: the requests wait in the routers' queues, instead of being under way.
    """

    number: int
    strike: Strike
    in_queue: bool


def turns(seed: int, strikes: Sequence[Strike], coverage: Coverage, max_passes: int) -> Iterator[Turn]:
    """Each fault once under way and once in the queue, shuffled; then again those that have missed a stage."""
    source = random.Random(f"turns {seed}")
    number = 0
    for _ in range(max_passes):
        order = [(strike, in_queue) for strike in strikes for in_queue in (False, True)]
        source.shuffle(order)
        for strike, in_queue in order:
            missing = coverage.missing(strike)
            if (Stage.QUEUED in missing) if in_queue else (missing - {Stage.QUEUED}):
                number += 1
                yield Turn(number=number, strike=strike, in_queue=in_queue)
