"""A process that only sleeps, and notes when it was woken late: what no program here can help."""

from __future__ import annotations

import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

NAP_S = 0.001
WORTH_TELLING_S = 0.003


class Stall(NamedTuple):
    """News: the machine ran something else from `began` on."""

    began: float
    seconds: float


def run_stall_watch(pipe: Connection) -> None:
    """Until it is killed."""
    while True:
        before = time.monotonic()
        time.sleep(NAP_S)
        late = time.monotonic() - before - NAP_S
        if late > WORTH_TELLING_S:
            pipe.send(Stall(before + NAP_S, late))


def without_stalls(began: float, seconds: float, stalls: Sequence[Stall]) -> float:
    """What is left of a time when the machine's stalls within it are taken away."""
    ended = began + seconds
    stalled = sum(
        max(0.0, min(ended, stall.began + stall.seconds) - max(began, stall.began))
        for stall in stalls
        if stall.began < ended
    )
    return seconds - stalled
