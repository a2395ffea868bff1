"""Runs steps so that a request which makes one raise fails alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Series

from common.engine.runner import Runner
from common.engine.sampled_token import SequenceResult
from common.engine.scheduler_output import ScheduledSequence, SchedulerOutput
from common.errors import EngineError

logger = logging.getLogger(__name__)


class StepExecutor:
    """Owner: the engine, one thread.

    A step that raised is computed again, each sequence alone. That is safe, for it writes the same KV to the same
    slots once more, and what it reads beside them was complete before the step. Copies of blocks are not repeated: by
    then their sources may have been written to.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, output: SchedulerOutput) -> list[SequenceResult]:
        """One result per scheduled sequence, with an error for those to blame."""
        if output.copies:
            self._runner.copy_blocks(output.copies)
        if not output.scheduled:
            return []
        try:
            return self._execute(output.scheduled)
        except Exception as error:
            logger.exception("a step of %d sequences raised", len(output.scheduled))
            if len(output.scheduled) == 1:
                return [_failed(error)]
        return [self._execute_alone(entry) for entry in output.scheduled]

    def _execute_alone(self, entry: ScheduledSequence) -> SequenceResult:
        try:
            return self._execute((entry,))[0]
        except Exception as error:
            logger.exception("request %s made its step raise", entry.sequence.leg.request_id)
            return _failed(error)

    def _execute(self, scheduled: Series[ScheduledSequence]) -> list[SequenceResult]:
        results = self._runner.execute(scheduled)
        if len(results) != len(scheduled):
            raise EngineError(f"{len(results)} results of {len(scheduled)} sequences")
        return results


def _failed(error: Exception) -> SequenceResult:
    return SequenceResult(error=f"the step raised {type(error).__name__}: {error}")
