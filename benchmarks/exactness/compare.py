"""Compares served tokens with a reference, and says what a tie is.

Two float32 computations of one sum in another order differ in the last bits. Where the reference's two most likely
tokens are closer than TIE_GAP, either is right; everywhere else a different token is a failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.exactness.reference import Reference

TIE_GAP = 1e-4  # logit units
TOKENS_PER_TIE = 2560


class ReferenceSource(Protocol):
    """Makes a reference for tokens that no committed one has."""

    def generate(self, name: str, prompt_token_ids: Sequence[int], num_new_tokens: int) -> Reference: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """The served side drew the runner-up of a near-tie."""

    name: str
    position: int  # among the new tokens
    served: int  # token id
    expected: int  # token id
    gap: float  # logit units

    def __str__(self) -> str:
        return (
            f"tie: {self.name} token {self.position}: {self.served} served, {self.expected} in the reference, "
            f"gap {self.gap:.2g}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Of one prompt. `failure` is None, or says where and how the served tokens are wrong."""

    num_tokens: int
    ties: tuple[Tie, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of many prompts together."""

    num_tokens: int
    ties: tuple[Tie, ...]
    failures: tuple[str, ...]

    @property
    def exact(self) -> bool:
        return not self.failures


def compare_tokens(served: Sequence[int], reference: Reference, source: ReferenceSource) -> Comparison:
    """Compares token by token. After a tie, the rest is compared with a new reference that goes on from the served
    tokens, so that nothing stays unchecked."""
    if len(served) != len(reference.token_ids):
        failure = f"{reference.name}: {len(served)} tokens served, {len(reference.token_ids)} in the reference"
        return Comparison(num_tokens=len(served), failure=failure)
    ties: list[Tie] = []
    start = 0  # position of expected.token_ids[0] among the new tokens
    expected = reference
    while True:
        offset = _first_difference(served[start:], expected.token_ids)
        if offset is None:
            return Comparison(num_tokens=len(served), ties=tuple(ties))
        position = start + offset
        tie = Tie(
            name=reference.name,
            position=position,
            served=served[position],
            expected=expected.token_ids[offset],
            gap=expected.gaps[offset],
        )
        if tie.gap >= TIE_GAP or tie.served != expected.runner_ups[offset]:
            return Comparison(num_tokens=len(served), ties=tuple(ties), failure=_describe(tie))
        ties.append(tie)
        start = position + 1
        if start == len(served):
            return Comparison(num_tokens=len(served), ties=tuple(ties))
        so_far = (*reference.prompt_token_ids, *served[:start])
        expected = source.generate(reference.name, so_far, len(served) - start)


def judge(comparisons: Iterable[Comparison]) -> Verdict:
    """All failures, and one more when there are more ties than chance explains."""
    comparisons = tuple(comparisons)
    num_tokens = sum(comparison.num_tokens for comparison in comparisons)
    ties = tuple(tie for comparison in comparisons for tie in comparison.ties)
    failures = [comparison.failure for comparison in comparisons if comparison.failure is not None]
    if not comparisons:
        failures.append("nothing was compared")
    if len(ties) * TOKENS_PER_TIE > num_tokens:
        failures.append(f"{len(ties)} ties in {num_tokens} tokens; one per {TOKENS_PER_TIE} is allowed")
    return Verdict(num_tokens=num_tokens, ties=ties, failures=tuple(failures))


def _first_difference(served: Sequence[int], expected: Sequence[int]) -> int | None:
    pairs = enumerate(zip(served, expected, strict=True))
    return next((position for position, (left, right) in pairs if left != right), None)


def _describe(tie: Tie) -> str:
    return (
        f"{tie.name}: token {tie.position} is {tie.served}, the reference has {tie.expected} "
        f"(gap {tie.gap:.4g}; a tie is under {TIE_GAP:g} and draws the runner-up)"
    )
