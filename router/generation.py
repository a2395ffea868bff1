"""What the router's front ends (gRPC, HTTP) ask of its core, in plain Python.

Owns the vocabulary of one generation; knows neither wire formats nor workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from common.request import FinishReason, SamplingParams, TokenLogprob
from router.access.tenant import Tenant


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPrompt:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Messages as the chat template sees them; `role` and `content` are there, other fields as sent."""

    messages: Sequence[Mapping[str, Any]]
    add_generation_prompt: bool = True
    tools: Sequence[Mapping[str, Any]] | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPrompt:
    token_ids: Sequence[int]


Prompt = TextPrompt | ChatPrompt | TokenPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteHint:
    """An operator's wish; ids are worker ids, None where the planner chooses."""

    prefill_worker: str | None = None
    decode_worker: str | None = None
    decode_only: bool = False
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumedChoice:
    """What the caller has of one choice. `num_text_chars` are code points; `finish_reason` None: it goes on."""

    index: int
    token_ids: tuple[int, ...]
    num_text_chars: int
    finish_reason: FinishReason | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """An answer that another router has begun. Choices that are not named have no token yet."""

    prompt_digest: bytes
    choices: tuple[ResumedChoice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateCommand:
    """One request, as a front end decoded it. Durations are seconds; `deadline_s` counts from arrival.

    `tenant` is whose key came with it; None where no keys are asked for.
    Of an answer that is silent for `heartbeat_s`, an empty event says that it is not forgotten; None: nothing does.
    """

    request_id: str
    model: str = ""
    prompt: Prompt
    sampling: SamplingParams
    priority: int = 0
    deadline_s: float | None = None
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    route: RouteHint = field(default_factory=RouteHint)
    cache_salt: str = ""
    tenant: Tenant | None = None
    return_prompt_token_ids: bool = False
    heartbeat_s: float | None = None
    resume_from: ResumePoint | None = None
    canary: bool = False


@dataclass(slots=True, kw_only=True)  # not frozen: one comes with each token, and a frozen one costs twice as much
class ChoiceDelta:
    """New tokens and text of one choice. `first_index` is the position of token_ids[0] among its tokens."""

    index: int
    first_index: int = 0
    token_ids: tuple[int, ...] = ()
    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    stop_string: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens. `cached_tokens`: prompt tokens whose KV the computing worker reused in the first attempt."""

    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds; see Timings in protos/inference.proto for what each spans."""

    queue_s: float
    prefill_s: float
    transfer_s: float
    ttft_s: float
    token_1_to_2_s: float
    total_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTaken:
    """Where the request ran and what moved; fields as RouteTaken in protos/inference.proto."""

    prefill_worker: str | None
    decode_worker: str | None
    attempts: int
    transferred_bytes: int
    transferred_blocks: int
    decode_cached_blocks: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStart:
    """What another router needs to go on with the answer, beside the request and the tokens so far."""

    seed: int
    prompt_digest: bytes


class GenerateEvent(NamedTuple):
    """One message of an answer. The first one with tokens, and only it, carries the start; the last one, and only it,
    usage, timings and route."""

    start: AnswerStart | None = None
    choices: tuple[ChoiceDelta, ...] = ()
    prompt_token_ids: tuple[int, ...] | None = None
    prompt_logprobs: tuple[TokenLogprob, ...] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    route: RouteTaken | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """Lengths are None until a worker has told them."""

    id: str
    max_model_len: int | None  # tokens
    vocab_size: int | None  # tokens
    created_s: int  # Unix seconds


class AnswerFeed(Protocol):
    """One request's answer, as its front end takes it: told that there is news, it takes all of it at once.

    No task of the front end's need be woken for a token: who serves many answers takes what they have together.
    """

    @property
    def request_id(self) -> str: ...

    @property
    def ended(self) -> bool:
        """Whether everything was taken, the error included: nothing will come any more."""
        ...

    def take(self) -> GenerateEvent | None:
        """The next event, with all that is new; None when there is nothing now. Raises, once and last, what the
        request failed with: SlipstreamError subclasses, each with its status."""
        ...

    def close(self) -> None:
        """The caller wants no more: what has not ended is cancelled on every worker. Idempotent."""
        ...

    async def wait_closed(self) -> None:
        """After `close`: until nothing of the request is left here."""
        ...


class Generator(Protocol):
    """The router's core as its front ends see it."""

    def begin(self, command: GenerateCommand, on_news: Callable[[], None]) -> AnswerFeed:
        """Begins a request; `close` its feed on every path. `on_news` is called on the event loop whenever there is
        something to take, more than once for the same news, and never from within this.

        Raises SlipstreamError subclasses for what is refused at the door.
        """
        ...

    def models(self) -> Sequence[ModelCard]: ...


async def events_of(generator: Generator, command: GenerateCommand) -> AsyncGenerator[GenerateEvent, None]:
    """The answer, event by event, for a front end with a task for it. Closing the iterator cancels the request.

    Raises what `begin` and `take` raise.
    """
    news = asyncio.Event()
    feed = generator.begin(command, news.set)
    try:
        while not feed.ended:
            await news.wait()
            news.clear()
            while (event := feed.take()) is not None:
                yield event
    finally:
        feed.close()
        await feed.wait_closed()
