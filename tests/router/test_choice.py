"""A choice that goes on at another router: wherever it was cut, the caller gets the text once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidRequestError
from common.request import FinishReason, WorkerId
from router.choice import Choice
from router.generation import ChoiceDelta, ResumedChoice
from router.inbox import TokensArrived
from router.text import TextModel
from tests.support.tokenizers import BUILDERS

MAX_TOKENS = 100


@pytest.fixture(scope="module", params=BUILDERS)
def text(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    folder = tmp_path_factory.mktemp("text")
    BUILDERS[request.param]().save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"max_position_embeddings": 1024}')
    return TextModel.load(folder)


def make_choice(text: TextModel, stop: Sequence[str] = ()) -> Choice:
    return Choice(index=0, text_stream=text.stream(stop=stop))


def tokens(first_index: int, token_ids: Sequence[int], *, finish: bool = False) -> TokensArrived:
    return TokensArrived(
        worker_id=WorkerId("w"),
        choice_index=0,
        first_index=first_index,
        token_ids=tuple(token_ids),
        logprobs=(),
        finish_reason=FinishReason.LENGTH if finish else None,
        stop_token_id=None,
        start=None,
    )


def answer_to(choice: Choice, token_ids: Sequence[int], first_index: int = 0, *, finish: bool = True) -> ChoiceDelta:
    """The rest of an answer, token by token as workers send it."""
    for index, token_id in enumerate(token_ids[first_index:], start=first_index):
        if not choice.finished:
            choice.add(tokens(index, [token_id], finish=finish and index == len(token_ids) - 1), 0)
    return choice.take()


@given(data=st.data())
def test_text_and_tokens_are_those_of_the_whole(text: TextModel, data: st.DataObject) -> None:
    # Any tokens: most are parts of characters.
    token_ids = data.draw(st.lists(st.integers(0, text.vocab_size - 1), min_size=2, max_size=12), label="token_ids")
    plain = answer_to(make_choice(text), token_ids).text
    start = data.draw(st.integers(0, max(0, len(plain) - 1)), label="start")
    stop = [plain[start : start + data.draw(st.integers(1, 5), label="length")]] if plain else []
    whole = answer_to(make_choice(text, stop), token_ids)
    cut = data.draw(st.integers(0, len(whole.token_ids) - 1), label="cut")
    first = answer_to(make_choice(text, stop), token_ids[:cut], finish=False)

    resumed = make_choice(text, stop)
    resumed.resume(received(first), MAX_TOKENS)
    assert not resumed.has_unread
    rest = answer_to(resumed, token_ids, cut)
    assert first.token_ids + rest.token_ids == whole.token_ids
    assert first.text + rest.text == whole.text
    assert rest.first_index == cut
    assert (rest.finish_reason, rest.stop_string) == (whole.finish_reason, whole.stop_string)


def test_text_that_another_router_held_back_is_told_first(text: TextModel) -> None:
    token_ids = list(range(5, 60))
    whole = answer_to(make_choice(text), token_ids).text
    for num_chars in (0, 1, len(whole) // 2):
        resumed = make_choice(text)
        had = ResumedChoice(index=0, token_ids=tuple(token_ids[:40]), num_text_chars=num_chars, finish_reason=None)
        resumed.resume(had, MAX_TOKENS)
        assert whole[:num_chars] + answer_to(resumed, token_ids, 40).text == whole


def test_a_choice_that_had_ended_stays_so(text: TextModel) -> None:
    resumed = make_choice(text)
    resumed.resume(
        ResumedChoice(index=0, token_ids=(5, 6), num_text_chars=1, finish_reason=FinishReason.STOP), MAX_TOKENS
    )
    assert resumed.finished
    assert not resumed.has_unread
    assert resumed.token_ids == [5, 6]


def test_a_choice_whose_end_was_not_told_ends(text: TextModel) -> None:
    resumed = make_choice(text)
    whole = answer_to(make_choice(text), [5, 6, 7])
    resumed.resume(ResumedChoice(index=0, token_ids=(5, 6, 7), num_text_chars=0, finish_reason=None), 3)
    assert resumed.take() == ChoiceDelta(index=0, first_index=3, text=whole.text, finish_reason=FinishReason.LENGTH)


def test_tokens_after_a_stop_string_are_refused(text: TextModel) -> None:
    token_ids = text.encode("the a hello world the a", max_model_len=99)
    plain = answer_to(make_choice(text), token_ids).text
    resumed = make_choice(text, [plain[:2]])
    had = ResumedChoice(index=0, token_ids=tuple(token_ids), num_text_chars=0, finish_reason=None)
    with pytest.raises(InvalidRequestError, match="stop string"):
        resumed.resume(had, MAX_TOKENS)


def received(delta: ChoiceDelta) -> ResumedChoice:
    return ResumedChoice(index=0, token_ids=delta.token_ids, num_text_chars=len(delta.text), finish_reason=None)
