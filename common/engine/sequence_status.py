"""What an engine tells, when asked, about each sequence that it has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from common.engine.sequence import Sequence, SequenceState
from common.request import RequestId


class SequenceStage(StrEnum):
    QUEUED = "queued"  # waits for a step, with nothing computed
    PREFILLING = "prefilling"
    HANDING_OVER = "handing_over"  # has ended here, but a transfer still reads its blocks
    DECODING = "decoding"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceStatus:
    """Some choices of a request that go together. Counts are tokens; `num_computed_tokens` have their KV here."""

    request_id: RequestId
    attempt: int
    choice_indices: tuple[int, ...]
    stage: SequenceStage
    num_prompt_tokens: int
    num_computed_tokens: int
    num_output_tokens: int


def status_of(sequence: Sequence) -> SequenceStatus:
    return SequenceStatus(
        request_id=sequence.leg.request_id,
        attempt=sequence.leg.attempt,
        choice_indices=sequence.choice_indices,
        stage=_stage(sequence),
        num_prompt_tokens=sequence.num_prompt_tokens,
        num_computed_tokens=sequence.num_computed_tokens,
        num_output_tokens=sequence.num_output_tokens,
    )


def _stage(sequence: Sequence) -> SequenceStage:
    if sequence.state is SequenceState.ENDED:
        return SequenceStage.HANDING_OVER
    if not sequence.num_computed_tokens:
        return SequenceStage.QUEUED
    return SequenceStage.DECODING if sequence.start_told else SequenceStage.PREFILLING
