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
    SHORT = "short"  # is handed over, and decodes for seconds
    HELD = "held"  # its second chunk is not let through
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
class Workload:
    """Tokens by shape: prompt and answer. A prompt of two chunks is given its places at once, a longer one later.

    `counts`: how many of a shape are under way; with one worker less they are to be computed again in a second or so.
    `let_bytes`: more than the KV of a chunk, less than that of two. `patience_s`: how long a stage is waited for.
    """

    prompt: Mapping[Shape, int]
    answer: Mapping[Shape, int]
    counts: Mapping[Shape, int]
    vocab_size: int
    let_bytes: int
    patience_s: float
    kinds: Sequence[Kind] = tuple(Kind)


SMALL_WORKLOAD = Workload(
    prompt={
        Shape.STREAM: 60,
        Shape.SHORT: 60,
        Shape.HELD: 64,
        Shape.LONG: 1150,
        Shape.FILLER: 40,
        Shape.BLOCKER: 3000,
    },
    answer={
        Shape.STREAM: 600,
        Shape.SHORT: 600,
        Shape.HELD: 48,
        Shape.LONG: 32,
        Shape.FILLER: 60,
        Shape.BLOCKER: 8,
    },
    counts={Shape.STREAM: 4, Shape.SHORT: 4, Shape.HELD: 6, Shape.LONG: 5},
    vocab_size=257,
    let_bytes=16_000,
    patience_s=1.5,
)


# SmolLM2-135M in float32 draws about 20 tokens a second on a shared core, and computes a chunk in a second.
DEMO_WORKLOAD = Workload(
    prompt={
        Shape.STREAM: 20,
        Shape.SHORT: 40,
        Shape.HELD: 64,
        Shape.LONG: 96,
        Shape.FILLER: 20,
        Shape.BLOCKER: 128,
    },
    answer={
        Shape.STREAM: 32,
        Shape.SHORT: 24,
        Shape.HELD: 4,
        Shape.LONG: 4,
        Shape.FILLER: 4,
        Shape.BLOCKER: 2,
    },
    counts={Shape.STREAM: 3, Shape.SHORT: 2, Shape.HELD: 3, Shape.LONG: 2},
    vocab_size=49_152,
    let_bytes=2_200_000,
    patience_s=4.0,
    kinds=(Kind.GREEDY, Kind.SEEDED),
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


def make_question(seed: int, workload: Workload, shape: Shape, kind: Kind, variant: int) -> Question:
    """Another prompt for each variant."""
    source = random.Random(f"{seed} {shape} {kind} {variant}")
    length = workload.prompt[shape]
    # Every second kind begins like the others of its shape: with a prefix that may be cached.
    num_shared = length // 2 if list(Kind).index(kind) % 2 else 0
    shared = _tokens(random.Random(f"{seed} {shape} prefix"), workload, num_shared)
    options = {**KIND_OPTIONS[kind], "ignore_eos": True}
    if shape is Shape.FILLER:
        options["n"] = FILLER_CHOICES
    return Question(
        name=f"{shape}/{kind}",
        shape=shape,
        kind=kind,
        prompt=(*shared, *_tokens(source, workload, length - num_shared)),
        max_tokens=workload.answer[shape],
        options=options,
    )


def with_stop_string(question: Question, text: str) -> Question:
    """The question with a stop string that its own answer has, late."""
    start = len(text) * 9 // 10
    return replace(question, options={**question.options, "stop": (text[start : start + STOP_CHARS],)})


def kinds_of(workload: Workload, shape: Shape) -> Sequence[Kind]:
    """Every kind, but for fillers and blockers, which are there to be in the way."""
    if shape is Shape.FILLER:
        return (Kind.SEEDED,)
    return (Kind.GREEDY,) if shape is Shape.BLOCKER else workload.kinds


def _tokens(source: random.Random, workload: Workload, count: int) -> Iterator[int]:
    # Token 0 ends an answer.
    return (source.randrange(1, workload.vocab_size) for _ in range(count))
