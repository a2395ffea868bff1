"""Runs steps so that a request which makes one raise fails alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence as Series

import numpy as np

from common.engine.runner import Runner
from common.engine.sampled_token import SequenceResult
from common.engine.scheduler_output import ScheduledSequence, SchedulerOutput
from common.engine.sequence import Sequence
from common.errors import EngineError
from common.kv.block_table import BlockTable
from common.request import Leg, RequestId, SamplingParams

logger = logging.getLogger(__name__)

HARMLESS = Leg(
    request_id=RequestId("self-test"),
    attempt=1,
    choice_indices=(0,),
    prompt_token_ids=(0,),
    sampling=SamplingParams(max_tokens=1, temperature=0.0, seed=0),
    canary=True,
)


class StepExecutor:
    """Owner: the engine, one thread.

    A step that raised is computed again, each sequence alone. That is safe, for it writes the same KV to the same
    slots once more, and what it reads beside them was complete before the step. Copies of blocks are not repeated: by
    then their sources may have been written to.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def run(self, output: SchedulerOutput) -> list[SequenceResult]:
        """One result per scheduled sequence, with an error for those to blame.

        Raises EngineError when the runner can't even compute one harmless token any more, as after the loss of a
        device: then it is no request's fault.
        """
        if output.copies:
            self._runner.copy_blocks(output.copies)
        if not output.scheduled:
            return []
        try:
            return self._execute(output.scheduled)
        except Exception as error:
            logger.exception("a step of %d sequences raised", len(output.scheduled))
            results: list[SequenceResult | Exception] = [error]
        if len(output.scheduled) > 1:
            results = [self._execute_alone(entry) for entry in output.scheduled]
        if all(isinstance(result, Exception) for result in results):
            self._check_runner(output.scheduled[-1].sequence.table)
        return [_failed(result) if isinstance(result, Exception) else result for result in results]

    def _execute_alone(self, entry: ScheduledSequence) -> SequenceResult | Exception:
        try:
            return self._execute((entry,))[0]
        except Exception as error:
            logger.exception("request %s made its step raise", entry.sequence.leg.request_id)
            return error

    def _check_runner(self, failed: BlockTable) -> None:
        # The last block is the failed sequence's own, and nobody reads it any more.
        table = BlockTable(failed.root, failed.epoch)
        table.append([failed.block_id(failed.num_blocks - 1)])
        sequence = Sequence(
            leg=HARMLESS,
            choice_indices=HARMLESS.choice_indices,
            token_ids=np.zeros(1, dtype="<u4"),
            table=table,
            arrival=0,
            submit_s=0.0,
        )
        try:
            self._execute((ScheduledSequence(sequence, start=0, num_tokens=1, samples=True),))
        except Exception as error:
            raise EngineError(f"the model can't compute anything any more: {type(error).__name__}: {error}") from error

    def _execute(self, scheduled: Series[ScheduledSequence]) -> list[SequenceResult]:
        results = self._runner.execute(scheduled)
        if len(results) != len(scheduled):
            raise EngineError(f"{len(results)} results of {len(scheduled)} sequences")
        return results


def _failed(error: Exception) -> SequenceResult:
    return SequenceResult(error=f"the step raised {type(error).__name__}: {error}")
