"""Each token once, text as it becomes certain, figures of the whole."""

from __future__ import annotations

import pytest

from common.request import FinishReason, RequestId, SamplingParams, WorkerId
from router.admission import AdmittedRequest
from router.answer import Answer
from router.generation import GenerateCommand, TokenPrompt
from router.inbox import LegStarted, TokensArrived
from router.text import TextModel
from router.worker_info import WorkerInfo
from tests.support.router import text_model, worker_info


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    return text_model(tmp_path_factory.mktemp("text"))


def answer_of(text: TextModel, info: WorkerInfo, **sampling: object) -> Answer:
    params = SamplingParams(max_tokens=8, seed=0, **sampling)  # type: ignore[arg-type]
    command = GenerateCommand(request_id="r", prompt=TokenPrompt(token_ids=(1,)), sampling=params)
    request = AdmittedRequest(
        request_id=RequestId("r"),
        command=command,
        worker=info,
        prompt_token_ids=(1,),
        prompt_digest=bytes(16),
        sampling=params,
        cache_salt=b"",
        point_keys=(),
        arrival_s=0.0,
        deadline_s=None,
    )
    return Answer(request, text, lambda: None)


def tokens(first_index: int, *token_ids: int, choice: int = 0, finish: FinishReason | None = None) -> TokensArrived:
    return TokensArrived(
        worker_id=WorkerId("w"),
        choice_index=choice,
        first_index=first_index,
        token_ids=token_ids,
        logprobs=(),
        finish_reason=finish,
        stop_token_id=None,
        start=LegStarted(num_cached_tokens=0, queue_s=0.0, prefill_s=0.0, prompt_logprobs=()),
    )


def test_unread_tokens_are_merged(text: TextModel) -> None:
    answer = answer_of(text, worker_info())
    answer.deliver(tokens(0, 5), 0.0)
    answer.deliver(tokens(1, 6, 7), 0.0)
    event = answer.take()
    assert event is not None
    assert event.choices[0].token_ids == (5, 6, 7)
    assert answer.take() is None


def test_repeated_tokens_are_dropped_and_gaps_not_taken(text: TextModel) -> None:
    answer = answer_of(text, worker_info())
    answer.deliver(tokens(0, 5, 6), 0.0)
    answer.deliver(tokens(1, 6, 7), 0.0)
    answer.deliver(tokens(9, 8), 0.0)
    assert answer.choices[0].token_ids == [5, 6, 7]


def test_nothing_follows_the_end(text: TextModel) -> None:
    answer = answer_of(text, worker_info())
    answer.deliver(tokens(0, 5, finish=FinishReason.LENGTH), 0.0)
    answer.deliver(tokens(1, 6), 0.0)
    assert answer.finished
    assert answer.last_event().usage is not None
    assert answer.choices[0].token_ids == [5]


def test_choices_are_kept_apart(text: TextModel) -> None:
    answer = answer_of(text, worker_info(), n=2, temperature=1.0)
    answer.deliver(tokens(0, 5, choice=1), 0.0)
    answer.deliver(tokens(0, 6, choice=0, finish=FinishReason.STOP), 0.0)
    event = answer.take()
    assert event is not None
    assert {delta.index: delta.token_ids for delta in event.choices} == {0: (6,), 1: (5,)}
    assert not answer.finished


def test_stop_string_ends_the_choice(text: TextModel) -> None:
    stop_id = 5
    stop = text.decode([stop_id])
    answer = answer_of(text, worker_info(), stop=(stop,))
    answer.deliver(tokens(0, 4, stop_id, 6), 0.0)
    assert answer.choices[0].finish_reason is FinishReason.STOP
    assert answer.choices[0].stop_string == stop
    assert answer.choices[0].token_ids == [4, stop_id]
