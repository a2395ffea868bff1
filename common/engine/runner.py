"""The seam between scheduling and computing."""

from __future__ import annotations

from typing import Protocol

from common.engine.sampled_token import SequenceResult
from common.engine.scheduler_output import SchedulerOutput


class Runner(Protocol):
    """Computes a step: the model's on real weights, a tiny deterministic one in scheduler tests."""

    def execute(self, output: SchedulerOutput) -> list[SequenceResult]:
        """One result per scheduled sequence, in order. Computing the same output again gives the same result.

        May raise anything; the engine then finds the sequence to blame.
        """
        ...
