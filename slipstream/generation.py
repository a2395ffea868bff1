"""An answer as the client gives it: piece by piece, or whole. Knows no wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from common.request import FinishReason, TokenLogprob
from router.generation import ChoiceDelta, RouteHint, RouteTaken, Timings, Usage


class GenerateOptions(TypedDict, total=False):
    """What `generate` and `stream` take beside the prompt. What is absent has the server's default."""

    messages: Sequence[Mapping[str, Any]]  # chat messages, in place of a prompt
    add_generation_prompt: bool
    tools: Sequence[Mapping[str, Any]]  # tool definitions for the chat template
    template_kwargs: Mapping[str, Any]  # further variables of the chat template
    model: str  # served model name; empty: the only one
    # How tokens are chosen: see protos/sampling.proto.
    max_tokens: int | None
    min_tokens: int
    temperature: float | None
    top_p: float | None
    top_k: int
    min_p: float
    seed: int | None
    repetition_penalty: float | None
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float]
    stop: Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    n: int | None
    logprobs: int | None
    prompt_logprobs: int | None
    # How the request is served.
    priority: int  # lower is more urgent
    deadline_ms: int | None  # milliseconds until the last token
    ttft_slo_ms: int | None  # milliseconds wanted until the first token
    tpot_slo_ms: int | None  # milliseconds wanted per token after the first
    route: RouteHint | Mapping[str, Any] | None  # a mapping has the fields of RouteHint
    request_id: str
    cache_salt: str
    return_prompt_token_ids: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDelta:
    """One message of an answer. Usage, timings and route come with the last one.

    `num_resumes` counts the routers that have gone on with the answer so far, in place of one that was lost.
    """

    request_id: str
    choices: tuple[ChoiceDelta, ...] = ()
    prompt_token_ids: tuple[int, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    route: RouteTaken | None = None
    num_resumes: int = 0

    @property
    def text(self) -> str:
        """The new text of choice 0."""
        return "".join(choice.text for choice in self.choices if choice.index == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One whole answer to the prompt."""

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]  # one per token when asked
    finish_reason: FinishReason | None
    stop_token_id: int | None
    stop_string: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """A whole answer: `choices` by index, and what it took.

    `num_resumes` counts the routers that went on with it in place of one that was lost; then timings and route are
    those of the last one.
    """

    request_id: str
    choices: tuple[Choice, ...]
    prompt_token_ids: tuple[int, ...] | None
    prompt_logprobs: tuple[TokenLogprob, ...] | None
    usage: Usage
    timings: Timings
    route: RouteTaken
    num_resumes: int = 0

    @property
    def text(self) -> str:
        """The text of choice 0."""
        return self.choices[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens of choice 0."""
        return self.choices[0].token_ids


@dataclass(slots=True, kw_only=True)
class _GrowingChoice:
    index: int
    text: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    last: ChoiceDelta | None = None

    def finished(self) -> Choice:
        assert self.last is not None
        return Choice(
            index=self.index,
            text="".join(self.text),
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            finish_reason=self.last.finish_reason,
            stop_token_id=self.last.stop_token_id,
            stop_string=self.last.stop_string,
        )


class GenerationBuilder:
    """Puts the pieces of one answer together. Owned by the call that receives them.

    A choice's tokens must come without gap or repetition; ValueError when they don't, since an answer with a hole
    must never look whole.
    """

    def __init__(self) -> None:
        self._choices: dict[int, _GrowingChoice] = {}
        self._prompt_token_ids: tuple[int, ...] | None = None
        self._prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self._last: GenerationDelta | None = None

    def add(self, delta: GenerationDelta) -> None:
        for piece in delta.choices:
            choice = self._choices.setdefault(piece.index, _GrowingChoice(index=piece.index))
            if piece.token_ids and piece.first_index != len(choice.token_ids):
                raise ValueError(
                    f"choice {piece.index}: token {piece.first_index} came where {len(choice.token_ids)} was due"
                )
            choice.text.append(piece.text)
            choice.token_ids.extend(piece.token_ids)
            choice.logprobs.extend(piece.logprobs)
            choice.last = piece
        if delta.prompt_token_ids is not None:
            self._prompt_token_ids = delta.prompt_token_ids
        if delta.prompt_logprobs is not None:
            self._prompt_logprobs = delta.prompt_logprobs
        self._last = delta

    def build(self) -> Generation:
        """ValueError when the last message has not come."""
        last = self._last
        if last is None or last.usage is None or last.timings is None or last.route is None:
            raise ValueError("the answer ended without its last message")
        return Generation(
            request_id=last.request_id,
            choices=tuple(self._choices[index].finished() for index in sorted(self._choices)),
            prompt_token_ids=self._prompt_token_ids,
            prompt_logprobs=self._prompt_logprobs,
            usage=last.usage,
            timings=last.timings,
            route=last.route,
            num_resumes=last.num_resumes,
        )
