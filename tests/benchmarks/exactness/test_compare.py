"""The comparison must fail on every wrong token, and forgive near-ties only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.exactness.compare import TOKENS_PER_TIE, Comparison, Tie, compare_tokens, judge
from benchmarks.exactness.reference import Reference

PROMPT = (5, 6)


def make_reference(
    token_ids: Sequence[int] = (1, 2, 3, 4), gaps: Sequence[float] = (1.0, 1.0, 1.0, 1.0), name: str = "p"
) -> Reference:
    runner_ups = tuple(token_id + 100 for token_id in token_ids)
    return Reference(
        name=name, prompt_token_ids=PROMPT, token_ids=tuple(token_ids), gaps=tuple(gaps), runner_ups=runner_ups
    )


class ScriptedSource:
    """Continues as told, and remembers what it was asked."""

    def __init__(self, *continuations: Reference) -> None:
        self.continuations = list(continuations)
        self.asked: list[tuple[tuple[int, ...], int]] = []

    def generate(self, name: str, prompt_token_ids: Sequence[int], num_new_tokens: int) -> Reference:
        self.asked.append((tuple(prompt_token_ids), num_new_tokens))
        return self.continuations.pop(0)


def test_equal_tokens_are_exact() -> None:
    comparison = compare_tokens((1, 2, 3, 4), make_reference(), ScriptedSource())
    assert comparison == Comparison(num_tokens=4)


@pytest.mark.parametrize("position", [0, 1, 2, 3])
def test_a_wrong_token_anywhere_fails(position: int) -> None:
    served = [1, 2, 3, 4]
    served[position] += 100  # the runner-up: wrong all the same where the gap is wide
    comparison = compare_tokens(served, make_reference(), ScriptedSource())
    assert comparison.failure is not None and f"token {position} is {served[position]}" in comparison.failure


@pytest.mark.parametrize("served", [(1, 2, 3), (1, 2, 3, 4, 5), ()])
def test_a_wrong_length_fails(served: tuple[int, ...]) -> None:
    assert compare_tokens(served, make_reference(), ScriptedSource()).failure is not None


def test_the_gap_at_the_threshold_is_no_tie() -> None:
    reference = make_reference(gaps=(1.0, 1.0, 1e-4, 1.0))
    assert compare_tokens((1, 2, 103, 4), reference, ScriptedSource()).failure is not None


def test_a_tie_must_draw_the_runner_up() -> None:
    reference = make_reference(gaps=(1.0, 1.0, 0.9e-4, 1.0))
    assert compare_tokens((1, 2, 77, 4), reference, ScriptedSource()).failure is not None


def test_a_near_tie_elsewhere_forgives_nothing() -> None:
    reference = make_reference(gaps=(1e-5, 1.0, 1.0, 1.0))
    assert compare_tokens((1, 102, 3, 4), reference, ScriptedSource()).failure is not None


def test_after_a_tie_the_rest_is_compared_with_a_new_reference() -> None:
    reference = make_reference(gaps=(1.0, 0.9e-4, 1.0, 1.0))
    source = ScriptedSource(make_reference((8, 9), (1.0, 1.0)))
    comparison = compare_tokens((1, 102, 8, 9), reference, source)
    assert comparison.failure is None
    assert comparison.ties == (Tie(name="p", position=1, served=102, expected=2, gap=0.9e-4),)
    assert source.asked == [((*PROMPT, 1, 102), 2)]


def test_a_wrong_token_after_a_tie_fails() -> None:
    reference = make_reference(gaps=(1.0, 0.9e-4, 1.0, 1.0))
    comparison = compare_tokens((1, 102, 3, 4), reference, ScriptedSource(make_reference((8, 9), (1.0, 1.0))))
    assert comparison.failure is not None and "token 2 is 3" in comparison.failure


def test_a_second_tie_after_a_tie_is_counted() -> None:
    reference = make_reference(gaps=(0.9e-4, 1.0, 1.0, 1.0))
    source = ScriptedSource(make_reference((7, 8, 9), (1.0, 0.5e-4, 1.0)), make_reference((3,), (1.0,)))
    comparison = compare_tokens((101, 7, 108, 3), reference, source)
    assert comparison.failure is None
    assert [tie.position for tie in comparison.ties] == [0, 2]
    assert source.asked == [((*PROMPT, 101), 3), ((*PROMPT, 101, 7, 108), 1)]


def test_a_tie_at_the_last_token_needs_no_new_reference() -> None:
    reference = make_reference(gaps=(1.0, 1.0, 1.0, 0.9e-4))
    comparison = compare_tokens((1, 2, 3, 104), reference, ScriptedSource())
    assert comparison.failure is None and len(comparison.ties) == 1


@pytest.mark.parametrize(
    ("num_tokens", "num_ties", "exact"),
    [
        (TOKENS_PER_TIE, 1, True),
        (TOKENS_PER_TIE - 1, 1, False),
        (2 * TOKENS_PER_TIE, 2, True),
        (2 * TOKENS_PER_TIE, 3, False),
    ],
)
def test_ties_are_at_most_one_per_2560_tokens(num_tokens: int, num_ties: int, exact: bool) -> None:
    ties = tuple(Tie(name="p", position=n, served=1, expected=2, gap=1e-5) for n in range(num_ties))
    assert judge([Comparison(num_tokens=num_tokens, ties=ties)]).exact is exact


def test_one_failure_among_many_fails_the_whole() -> None:
    verdict = judge([Comparison(num_tokens=4), Comparison(num_tokens=4, failure="p: wrong"), Comparison(num_tokens=4)])
    assert not verdict.exact and verdict.failures == ("p: wrong",)


def test_comparing_nothing_fails() -> None:
    assert not judge([]).exact
