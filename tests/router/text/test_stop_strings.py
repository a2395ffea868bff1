from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from router.text.stop_strings import StopStrings

letters = st.text(alphabet="ab", max_size=20)
stops = st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3)


def scan(text: str, stop: list[str], cuts: list[int]) -> tuple[str, str | None]:
    scanner, out = StopStrings(stop), ""
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in pairwise(edges):
        result = scanner.feed(text[start:end])
        out += result.text
        if result.stop_string is not None:
            return out, result.stop_string
    return out + scanner.flush(), None


@settings(max_examples=300, deadline=None)
@given(text=letters, stop=stops, cuts=st.lists(st.integers(0, 20), max_size=6))
def test_the_result_depends_on_the_text_alone(text, stop, cuts):
    whole = scan(text, stop, [])
    assert scan(text, stop, cuts) == whole
    assert scan(text, stop, list(range(len(text)))) == whole


@settings(max_examples=300, deadline=None)
@given(text=letters, stop=stops)
def test_the_match_that_ends_first_wins(text, stop):
    ends = [(text.find(item) + len(item), -len(item)) for item in stop if item in text]
    shown, stop_string = scan(text, stop, [])
    if not ends:
        assert (shown, stop_string) == (text, None)
    else:
        end, length = min(ends)
        assert shown == text[: end + length]
        assert stop_string == text[end + length : end]


@settings(max_examples=200, deadline=None)
@given(text=letters, stop=stops)
def test_no_more_is_held_back_than_may_start_a_stop_string(text, stop):
    scanner = StopStrings(stop)
    result = scanner.feed(text)
    held = scanner.flush()
    if result.stop_string is None:
        assert result.text + held == text
        assert not held or any(item.startswith(held) and item != held for item in stop)
