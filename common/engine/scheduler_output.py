"""What one step computes."""

from __future__ import annotations

from typing import NamedTuple

from common.engine.sequence import Sequence
from common.kv.manager import BlockCopy


class ScheduledSequence(NamedTuple):
    """Tokens [start, start + num_tokens) of a sequence; `samples` when they end it, so that a token is drawn.

    `copies` are made before anything is written.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    copies: tuple[BlockCopy, ...] = ()


class SchedulerOutput(NamedTuple):
    """`preempted` lost their blocks in this step; whether they wait again is the scheduler's policy."""

    scheduled: tuple[ScheduledSequence, ...]
    preempted: tuple[Sequence, ...]

    @property
    def num_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.scheduled)
