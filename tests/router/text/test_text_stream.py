"""Incremental detokenising gives what decoding at once gives; stop strings cut where they should."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pytest

from router.text.text_model import TextModel
from router.text.text_stream import TextDelta, TextStream

KINDS = ["byte_level", "byte_fallback", "gguf_llama", "gemma", "metaspace", "words"]
EURO = [3 + byte for byte in "€".encode()]  # byte tokens of the byte-fallback vocabularies


def push_all(stream: TextStream, token_ids: Sequence[int], rng: random.Random) -> str:
    text, position = "", 0
    while position < len(token_ids):
        size = rng.randint(1, 4)
        text += stream.push(token_ids[position : position + size]).text
        position += size
    return text + stream.push([], finished=True).text


def random_ids(model: TextModel, rng: random.Random) -> list[int]:
    # Often bytes, so that whole, broken and cut characters are common.
    pool = [*EURO, *EURO, *(rng.randrange(model.vocab_size) for _ in range(8))]
    return [rng.choice(pool) for _ in range(rng.randint(1, 12))]


@pytest.mark.parametrize("kind", KINDS)
def test_deltas_join_to_the_decoded_whole(kind, make_folder):
    model = TextModel.load(make_folder(kind))
    rng = random.Random(7)
    for _ in range(1500):
        token_ids = random_ids(model, rng)
        assert push_all(model.stream(), token_ids, rng) == model.decode(token_ids), token_ids


@pytest.mark.parametrize("kind", ["byte_level", "byte_fallback"])
def test_real_text_streams_back(kind, make_folder):
    model = TextModel.load(make_folder(kind))
    text = "hello world  the café 🙂👩‍👩‍👧 日本 \n\tend"
    token_ids = model.encode(text, max_model_len=4096)
    assert push_all(model.stream(), token_ids, random.Random(1)) == text


def test_an_unfinished_character_is_held_back_until_it_is_whole(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    token_ids = model.encode("é🙂", max_model_len=100)
    stream = model.stream()
    texts = [stream.push([token_id]).text for token_id in token_ids]
    assert "\ufffd" not in "".join(texts) and "".join(texts) == "é🙂"
    assert model.stream().push(token_ids[-3:-1], finished=True).text.count("\ufffd") >= 1


def test_a_byte_that_breaks_its_run_breaks_the_whole_run(make_folder):
    model = TextModel.load(make_folder("byte_fallback"))
    stream = model.stream()
    assert stream.push(EURO).text == ""  # a run of bytes is not certain before it ends
    assert stream.push([EURO[0]], finished=True).text == "\ufffd" * 4 == model.decode([*EURO, EURO[0]])


def test_special_tokens_have_no_text_and_count(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    end = model.encode("<|im_end|>", max_model_len=100)
    assert model.stream().push(end, finished=True) == TextDelta(text="", num_tokens=1)


def test_a_stop_token_counts_and_shows_no_text(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    token_ids = model.encode("ab", max_model_len=100)
    assert model.stream().push(token_ids, finished=True, stop_token=True) == TextDelta(text="a", num_tokens=2)


class StopCase:
    def __init__(self, model: TextModel, text: str, stop: Sequence[str], **options: int) -> None:
        self.token_ids = [token_id for letter in text for token_id in model.encode(letter, max_model_len=99)]
        self.stream = model.stream(stop=stop, **options)

    def run(self, size: int) -> tuple[str, str | None, int]:
        text, count = "", 0
        for position in range(0, len(self.token_ids), size):
            last = position + size >= len(self.token_ids)
            delta = self.stream.push(self.token_ids[position : position + size], finished=last)
            text, count = text + delta.text, count + delta.num_tokens
            if delta.stop_string is not None:
                return text, delta.stop_string, count
        return text, None, count


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one STOP two", ["STOP"], ("one ", "STOP", 8)),
        ("one STO", ["STOP"], ("one STO", None, 7)),
        ("aaab!", ["aab"], ("a", "aab", 4)),
        ("abcabd", ["abd"], ("abc", "abd", 6)),
        ("xyz", ["z", "yz", "q"], ("x", "yz", 3)),
        ("abc", ["b", "abc"], ("a", "b", 2)),
        ("née—fin", ["—"], ("née", "—", None)),
        ("STOP", ["STOP"], ("", "STOP", 4)),
    ],
)
def test_stop_strings_do_not_depend_on_the_pieces(size, text, stop, expected, make_folder):
    model = TextModel.load(make_folder("byte_level"))
    shown, stop_string, count = StopCase(model, text, stop).run(size)
    assert (shown, stop_string) == expected[:2]
    assert expected[2] in (None, count)


def test_text_that_may_start_a_stop_string_is_held_back(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    stream = model.stream(stop=["\n\nUser:"])
    texts = [stream.push(model.encode(piece, max_model_len=99)).text for piece in ("hi\n", "\nU", "sing")]
    assert texts == ["hi", "", "\n\nUsing"]


def test_a_stop_string_completed_by_the_last_bytes_is_found(make_folder):
    model = TextModel.load(make_folder("byte_fallback"))
    delta = model.stream(stop=["€"]).push(EURO, finished=True)
    assert delta == TextDelta(text="", num_tokens=3, stop_string="€")


def test_stop_strings_do_not_count_before_min_tokens(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    assert StopCase(model, "a.b.c", ["."], min_tokens=3).run(2) == ("a.b", ".", 4)


def test_a_push_costs_the_same_after_many_tokens(make_folder):
    model = TextModel.load(make_folder("byte_level"))
    stream = model.stream(stop=["never comes"])
    token_ids = model.encode("hello world ", max_model_len=99) * 50

    def cost_s() -> float:
        costs = []
        for _ in range(5):
            start = time.perf_counter()
            for token_id in token_ids:
                stream.push([token_id])
            costs.append(time.perf_counter() - start)
        return min(costs)

    first = cost_s()
    for _ in range(100):
        stream.push(token_ids)
    assert cost_s() < 4 * first
