"""Every way in which an answer can be wrong is found."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.chaos.judge import Expectation, Judgement, Verdict, judge
from benchmarks.chaos.stream import SeenChoice, longest_gap_s
from benchmarks.chaos.workload import ChoiceReference, Reference
from common.errors import DeadlineExceededError, UnavailableError
from common.request import FinishReason, TokenLogprob

LOGPROBS = tuple(TokenLogprob(token_id=token_id, logprob=-0.5, rank=1, top=()) for token_id in (5, 6, 7))
REFERENCE = Reference(
    choices=(
        ChoiceReference(
            token_ids=(5, 6, 7), text="abc", logprobs=LOGPROBS, finish_reason=FinishReason.STOP, stop_string="d"
        ),
    )
)


def whole_choice() -> SeenChoice:
    return SeenChoice(
        token_ids=[5, 6, 7],
        logprobs=[*LOGPROBS],
        text="abc",
        finish_reason=FinishReason.STOP,
        stop_string="d",
    )


def judged(
    choice: SeenChoice,
    *,
    error: Exception | None = None,
    cancelled: bool = False,
    silence_s: float = 0.1,
    may_refuse: bool = False,
) -> Judgement:
    stream: Any = SimpleNamespace(
        request_id="r", choices=[choice], error=error, cancelled=cancelled, longest_silence_s=lambda since_s: silence_s
    )
    return judge(stream, Expectation(reference=REFERENCE, since_s=0.0, bound_s=2.0, may_refuse=may_refuse))


def test_an_answer_like_the_reference_is_exact() -> None:
    assert judged(whole_choice()).verdict is Verdict.EXACT


def spoil(**fields: Any) -> Callable[[SeenChoice], None]:
    def change(choice: SeenChoice) -> None:
        for name, value in fields.items():
            setattr(choice, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        (spoil(token_ids=[5, 6, 8]), Verdict.WRONG),
        (spoil(token_ids=[5, 6], logprobs=[*LOGPROBS[:2]]), Verdict.WRONG),
        (spoil(token_ids=[5, 6, 7, 8], logprobs=[*LOGPROBS, LOGPROBS[0]]), Verdict.WRONG),
        (spoil(text="abd"), Verdict.WRONG),
        (spoil(text="ab"), Verdict.WRONG),
        (spoil(logprobs=[]), Verdict.WRONG),
        (spoil(logprobs=[*LOGPROBS[:2], TokenLogprob(token_id=7, logprob=-0.6, rank=1, top=())]), Verdict.WRONG),
        (spoil(finish_reason=FinishReason.LENGTH), Verdict.WRONG),
        (spoil(stop_string=None), Verdict.WRONG),
        (spoil(repeated=1), Verdict.DUPLICATED),
        (spoil(skipped=1), Verdict.WRONG),
        (spoil(finish_reason=None, stop_string=None), Verdict.LOST),
    ],
)
def test_a_spoilt_answer_is_found(change: Callable[[SeenChoice], None], verdict: Verdict) -> None:
    choice = whole_choice()
    change(choice)
    assert judged(choice).verdict is verdict


def test_an_error_is_a_loss_unless_it_was_to_be_expected_and_is_clear() -> None:
    part = SeenChoice(token_ids=[5], logprobs=[LOGPROBS[0]], text="a")
    assert judged(part, error=UnavailableError("gone")).verdict is Verdict.LOST
    assert judged(part, error=UnavailableError("gone"), may_refuse=True).verdict is Verdict.REFUSED
    assert judged(part, error=DeadlineExceededError("late"), may_refuse=True).verdict is Verdict.LOST


def test_wrong_tokens_are_wrong_however_the_stream_ended() -> None:
    part = SeenChoice(token_ids=[9], logprobs=[LOGPROBS[0]], text="a")
    assert judged(part, error=UnavailableError("gone"), may_refuse=True).verdict is Verdict.WRONG
    assert judged(part, cancelled=True).verdict is Verdict.WRONG


def test_silence_is_judged_last() -> None:
    assert judged(whole_choice(), silence_s=2.1).verdict is Verdict.SILENT


@pytest.mark.parametrize(("since_s", "gap_s"), [(0.0, 3.0), (2.0, 2.0), (3.75, 0.5), (6.0, 0.0)])
def test_silence_counts_from_a_time_on(since_s: float, gap_s: float) -> None:
    assert longest_gap_s([1.0, 4.0, 4.5, 5.0], since_s) == gap_s
