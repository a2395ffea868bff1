"""The seam between scheduling and computing."""

from __future__ import annotations

from collections.abc import Sequence as Series
from typing import Protocol

from common.engine.sampled_token import SequenceResult
from common.engine.scheduler_output import ScheduledSequence
from common.kv.manager import BlockCopy


class Runner(Protocol):
    """Computes a step: the model's on real weights, a tiny deterministic one in scheduler tests."""

    def copy_blocks(self, copies: Series[BlockCopy]) -> None:
        """Makes the copies one after the other, before it returns as far as later steps can tell."""
        ...

    def execute(self, scheduled: Series[ScheduledSequence]) -> list[SequenceResult]:
        """One result per sequence, in order. Their copies are made. Computing the same again gives the same result.

        May raise anything; the engine then finds the sequence to blame.
        """
        ...
