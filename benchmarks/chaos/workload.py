"""The requests of a run, all drawn from one seed: what they ask, and what a fleet without faults answered."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from common.request import FinishReason, TokenLogprob
from slipstream.generation import Generation

STOP_CHARS = 6
FILLER_CHOICES = 8


class Shape(StrEnum):
    """What a request is for: how long its prompt and its answer are."""

    STREAM = "stream"  # decodes for seconds
    SHORT = "short"  # its KV passes a closing link before the windows of HTTP/2 are full
    HELD = "held"  # its KV is a few times what is let through
    LONG = "long"  # many chunks
    FILLER = "filler"  # takes places in the batch
    BLOCKER = "blocker"  # one long step at a decode worker


class Kind(StrEnum):
    """What must survive a move."""

    GREEDY = "greedy"
    SEEDED = "seeded"
    CHOICES = "choices"
    LOGPROBS = "logprobs"
    PENALTIES = "penalties"
    STOP = "stop"


KIND_OPTIONS: Mapping[Kind, Mapping[str, Any]] = {
    Kind.GREEDY: {"temperature": 0.0},
    Kind.SEEDED: {"temperature": 0.9, "top_p": 0.95, "seed": 11},
    Kind.CHOICES: {"temperature": 0.8, "seed": 7, "n": 2},
    Kind.LOGPROBS: {"temperature": 0.0, "logprobs": 3},
    Kind.PENALTIES: {
        "temperature": 0.7,
        "seed": 3,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.2,
    },
    Kind.STOP: {"temperature": 0.0},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Tokens by shape: prompt and answer."""

    prompt: Mapping[Shape, int]
    answer: Mapping[Shape, int]
    vocab_size: int


SMALL_SIZES = Sizes(
    prompt={
        Shape.STREAM: 60,
        Shape.SHORT: 96,
        Shape.HELD: 400,
        Shape.LONG: 1200,
        Shape.FILLER: 40,
        Shape.BLOCKER: 1400,
    },
    answer={
        Shape.STREAM: 600,
        Shape.SHORT: 600,
        Shape.HELD: 48,
        Shape.LONG: 32,
        Shape.FILLER: 60,
        Shape.BLOCKER: 8,
    },
    vocab_size=257,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One distinct request; asked any number of times, its answer is the same."""

    name: str
    shape: Shape
    kind: Kind
    prompt: tuple[int, ...]
    max_tokens: int
    options: Mapping[str, Any]

    @property
    def num_choices(self) -> int:
        return int(self.options.get("n", 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceReference:
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    stop_string: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What was answered when nothing was broken, by choice."""

    choices: tuple[ChoiceReference, ...]

    @staticmethod
    def of(answer: Generation) -> Reference:
        return Reference(
            choices=tuple(
                ChoiceReference(
                    token_ids=choice.token_ids,
                    text=choice.text,
                    logprobs=choice.logprobs,
                    finish_reason=choice.finish_reason,
                    stop_string=choice.stop_string,
                )
                for choice in answer.choices
            )
        )


def make_question(seed: int, sizes: Sizes, shape: Shape, kind: Kind, variant: int) -> Question:
    """Another prompt for each variant."""
    source = random.Random(f"{seed} {shape} {kind} {variant}")
    length = sizes.prompt[shape]
    # Every second kind begins like the others of its shape: with a prefix that may be cached.
    num_shared = length // 2 if list(Kind).index(kind) % 2 else 0
    shared = _tokens(random.Random(f"{seed} {shape} prefix"), sizes, num_shared)
    options = {**KIND_OPTIONS[kind], "ignore_eos": True}
    if shape is Shape.FILLER:
        options["n"] = FILLER_CHOICES
    return Question(
        name=f"{shape}/{kind}",
        shape=shape,
        kind=kind,
        prompt=(*shared, *_tokens(source, sizes, length - num_shared)),
        max_tokens=sizes.answer[shape],
        options=options,
    )


def with_stop_string(question: Question, text: str) -> Question:
    """The question with a stop string that its own answer has, late."""
    start = len(text) * 9 // 10
    return replace(question, options={**question.options, "stop": (text[start : start + STOP_CHARS],)})


def kinds_of(shape: Shape) -> Sequence[Kind]:
    """Every kind, but for fillers and blockers, which are there to be in the way."""
    if shape is Shape.FILLER:
        return (Kind.SEEDED,)
    return (Kind.GREEDY,) if shape is Shape.BLOCKER else tuple(Kind)


def _tokens(source: random.Random, sizes: Sizes, count: int) -> Iterator[int]:
    # Token 0 ends an answer.
    return (source.randrange(1, sizes.vocab_size) for _ in range(count))
