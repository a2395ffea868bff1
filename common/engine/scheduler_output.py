"""What one step computes."""

from __future__ import annotations

from typing import NamedTuple

from common.engine.sequence import Sequence
from common.kv.manager import BlockCopy


class ScheduledSequence(NamedTuple):
    """Tokens [start, start + num_tokens) of a sequence; `samples` when they end it, so that a token is drawn.

    `copies` are those among the step's that this sequence needs.
    """

    sequence: Sequence
    start: int
    num_tokens: int
    samples: bool
    copies: tuple[BlockCopy, ...] = ()


class SchedulerOutput(NamedTuple):
    """`preempted` lost their KV in this step; whether they wait again is the scheduler's policy.

    `copies` are all that must be made, in this order, before the step writes anything: to the host first, whose
    sources are taken by others already.
    """

    scheduled: tuple[ScheduledSequence, ...]
    preempted: tuple[Sequence, ...] = ()
    copies: tuple[BlockCopy, ...] = ()

    @property
    def num_tokens(self) -> int:
        return sum(entry.num_tokens for entry in self.scheduled)
