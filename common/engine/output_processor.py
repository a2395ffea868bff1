"""Turns what a runner computed into tokens, hand-overs and endings, and moves sequences on."""

from __future__ import annotations

import logging
from dataclasses import replace

from common.engine.lease_table import LeaseTable
from common.engine.output_forecast import OutputForecast
from common.engine.results import (
    BlocksComputed,
    HandedOver,
    KeptChoice,
    LegEnded,
    LegEndReason,
    LegStart,
    StepResult,
    TokenOutput,
)
from common.engine.sampled_token import SampledToken, SequenceResult
from common.engine.scheduler import Scheduler
from common.engine.scheduler_output import ScheduledSequence
from common.engine.sequence import Sequence, SequenceState
from common.engine.sequence_registry import SequenceRegistry
from common.engine.stop import Stop, StopRules
from common.errors import EngineError, Status
from common.kv.first_token import FirstToken
from common.kv.manager import KVCacheManager

logger = logging.getLogger(__name__)


class OutputProcessor:
    """The second half of a step. A result may come after its sequence has ended: it is dropped then.

    What raises while one sequence's result is taken in ends that sequence, and of its result nothing is told. Owner:
    the engine, one thread.
    """

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        kv: KVCacheManager,
        registry: SequenceRegistry,
        leases: LeaseTable,
        forecast: OutputForecast,
        stop_rules: StopRules,
        vocab_size: int,
    ) -> None:
        self.num_generated_tokens = 0
        self.num_prefilled_tokens = 0
        self._scheduler = scheduler
        self._kv = kv
        self._registry = registry
        self._leases = leases
        self._forecast = forecast
        self._stop_rules = stop_rules
        self._vocab_size = vocab_size

    def process(self, entry: ScheduledSequence, result: SequenceResult, step: StepResult, now: float) -> None:
        """Takes in one sequence's part of a step."""
        sequence = entry.sequence
        if sequence.state is not SequenceState.RUNNING:
            return
        part = StepResult()
        try:
            self._take_in(entry, result, part, now)
        except Exception as error:
            message = str(error) if isinstance(error, EngineError) else f"its result raised {error!r}"
            logger.error("request %s failed: %s", sequence.leg.request_id, message, exc_info=_unforeseen(error))
            step.ends.append(self.end_early(sequence, LegEndReason.FAILED, Status.INTERNAL, message))
        else:
            step.add(part)

    def _take_in(self, entry: ScheduledSequence, result: SequenceResult, step: StepResult, now: float) -> None:
        sequence = entry.sequence
        self._check(entry, result)
        sequence.prompt_logprobs.extend(result.prompt_logprobs)
        # Nothing before it was in doubt: what is registered others will reuse.
        end = entry.start + entry.num_tokens
        self._kv.register_computed(sequence.table, sequence.token_ids, end)
        if not sequence.leg.canary:
            self.num_prefilled_tokens += max(0, min(end, sequence.num_prompt_tokens) - entry.start)
            self.num_generated_tokens += len(result.tokens)
        if sequence.hand_over:
            self._report_blocks(sequence, end, step)
        if not entry.samples:
            return
        if sequence.is_single:
            self._continue(sequence, result.tokens[0], step, now)
        else:
            self._divide(sequence, result.tokens, step, now)

    def _check(self, entry: ScheduledSequence, result: SequenceResult) -> None:
        """Raises EngineError when the sequence must fail, or its result is not one."""
        if result.error is not None:
            raise EngineError(result.error)
        num_tokens = len(entry.sequence.choice_indices) if entry.samples else 0
        if len(result.tokens) != num_tokens:
            raise EngineError(f"{len(result.tokens)} tokens were drawn, not {num_tokens}")
        if not all(0 <= token.token_id < self._vocab_size for token in result.tokens):
            raise EngineError("a token was drawn that is not in the vocabulary")

    def end_early(
        self, sequence: Sequence, reason: LegEndReason, status: Status | None = None, message: str = ""
    ) -> LegEnded:
        """Ends a sequence that did not finish; its blocks go back, or are leased while a transfer may read them."""
        self.end(sequence)
        leg = sequence.leg
        return LegEnded(
            request_id=leg.request_id,
            attempt=leg.attempt,
            choice_indices=sequence.choice_indices,
            reason=reason,
            status=status,
            message=message,
        )

    def end(self, sequence: Sequence) -> None:
        """Takes a sequence out of everything."""
        self._scheduler.remove(sequence)
        self._registry.remove(sequence)
        if sequence.hand_over and sequence.num_reported_blocks and not sequence.lease_released:
            self._leases.add(sequence, sequence.leg.choice_indices)
        else:
            self._kv.free(sequence.table)

    def keep(self, sequence: Sequence) -> KeptChoice:
        """Takes a movable sequence out of everything, its blocks into a lease.

        A step in flight may be drawing its next token: that result is dropped, and drawn again, the same, elsewhere.
        """
        self._scheduler.remove(sequence)
        self._registry.remove(sequence)
        self._leases.add(sequence, sequence.choice_indices)
        leg, choice_indices = sequence.leg, sequence.choice_indices
        *output_token_ids, last_token_id = sequence.token_ids[sequence.num_prompt_tokens :].tolist()
        num_computed_tokens = sequence.num_known_tokens - 1
        return KeptChoice(
            leg=replace(leg, choice_indices=choice_indices, output_token_ids=tuple(output_token_ids)),
            blocks=self._blocks(sequence, choice_indices, 0, self._kv.num_blocks_for(num_computed_tokens)),
            handed_over=HandedOver(
                request_id=leg.request_id,
                attempt=leg.attempt,
                choice_indices=choice_indices,
                num_computed_tokens=num_computed_tokens,
                first_tokens=(FirstToken(choice_index=choice_indices[0], token_id=last_token_id, finished=False),),
            ),
        )

    def _continue(self, sequence: Sequence, token: SampledToken, step: StepResult, now: float) -> None:
        first_index = sequence.num_output_tokens
        stop = self._stop_rules.find(sequence, token.token_id, first_index + 1)
        sequence.add_token(token.token_id)
        start = self._start(sequence, now)
        step.tokens.append(_output(sequence, sequence.choice_indices[0], first_index, token, stop, start))
        if stop is not None:
            if not sequence.leg.canary:
                self._forecast.observe(sequence.num_output_tokens)
            self.end(sequence)

    def _divide(self, sequence: Sequence, tokens: tuple[SampledToken, ...], step: StepResult, now: float) -> None:
        """First tokens of a leg with several choices, or of one to hand over."""
        first_index = sequence.num_output_tokens
        stops = [self._stop_rules.find(sequence, token.token_id, first_index + 1) for token in tokens]
        start = self._start(sequence, now)
        for choice_index, token, stop in zip(sequence.choice_indices, tokens, stops, strict=True):
            step.tokens.append(_output(sequence, choice_index, first_index, token, stop, start))
            start = None
        first_tokens = tuple(
            FirstToken(choice_index=choice_index, token_id=token.token_id, finished=stop is not None)
            for choice_index, token, stop in zip(sequence.choice_indices, tokens, stops, strict=True)
        )
        if not sequence.hand_over:
            self.fork(sequence, first_tokens, arrival=sequence.arrival)
        elif not all(token.finished for token in first_tokens):
            step.handed_over.append(
                HandedOver(
                    request_id=sequence.leg.request_id,
                    attempt=sequence.leg.attempt,
                    choice_indices=sequence.leg.choice_indices,
                    num_computed_tokens=sequence.num_computed_tokens,
                    first_tokens=first_tokens,
                )
            )
        self.end(sequence)

    def fork(self, parent: Sequence, first_tokens: tuple[FirstToken, ...], *, arrival: int) -> None:
        """A running sequence for each choice that goes on, over shared blocks. The parent keeps its own table.

        When one can't be made, none is.
        """
        try:
            for token in first_tokens:
                if not token.finished:
                    self._fork_one(parent, token, arrival)
        except Exception:
            for child in self._registry.find(parent.leg.request_id):
                if child.leg is parent.leg and child is not parent:
                    self.end(child)
            raise

    def _fork_one(self, parent: Sequence, token: FirstToken, arrival: int) -> None:
        table = self._kv.fork(parent.table)
        try:
            child = Sequence(
                leg=parent.leg,
                choice_indices=(token.choice_index,),
                token_ids=parent.token_ids.copy(),
                table=table,
                arrival=arrival,
                submit_s=parent.submit_s,
                start_told=True,
            )
            child.num_computed_tokens = parent.num_computed_tokens
            child.add_token(token.token_id)
        except Exception:
            self._kv.free(table)
            raise
        self._registry.add(child)
        self._scheduler.run(child)

    def _report_blocks(self, sequence: Sequence, num_computed_tokens: int, step: StepResult) -> None:
        first = sequence.num_reported_blocks
        if num_computed_tokens == sequence.num_known_tokens:
            num_complete = self._kv.num_blocks_for(num_computed_tokens)
        else:
            num_complete = num_computed_tokens // self._kv.block_size
        if num_complete <= first:
            return
        sequence.num_reported_blocks = num_complete
        step.computed.extend(self._blocks(sequence, sequence.leg.choice_indices, first, num_complete))

    def _blocks(
        self, sequence: Sequence, choice_indices: tuple[int, ...], first: int, end: int
    ) -> tuple[BlocksComputed, ...]:
        """Logical blocks [first, end), by group."""
        block_ids = tuple(sequence.table.block_ids[first:end].tolist())
        return tuple(
            BlocksComputed(
                request_id=sequence.leg.request_id,
                attempt=sequence.leg.attempt,
                choice_indices=choice_indices,
                group_id=group.group_id,
                first_logical_block=first,
                block_ids=block_ids,
            )
            for group in self._kv.spec.groups
        )

    def _start(self, sequence: Sequence, now: float) -> LegStart | None:
        if sequence.start_told:
            return None
        sequence.start_told = True
        first_step_s = now if sequence.first_step_s is None else sequence.first_step_s
        return LegStart(
            cached_tokens=sequence.cached_tokens or 0,
            queue_s=first_step_s - sequence.submit_s,
            prefill_s=now - first_step_s,
            prompt_logprobs=tuple(sequence.prompt_logprobs),
        )


def _unforeseen(error: Exception) -> Exception | None:
    """The error where its place in the code says more than its text."""
    return None if isinstance(error, EngineError) else error


def _output(
    sequence: Sequence,
    choice_index: int,
    first_index: int,
    token: SampledToken,
    stop: Stop | None,
    start: LegStart | None,
) -> TokenOutput:
    return TokenOutput(
        request_id=sequence.leg.request_id,
        attempt=sequence.leg.attempt,
        choice_index=choice_index,
        first_index=first_index,
        token_ids=(token.token_id,),
        logprobs=() if token.logprob is None else (token.logprob,),
        finish_reason=None if stop is None else stop.finish_reason,
        stop_token_id=None if stop is None else stop.stop_token_id,
        start=start,
    )
