"""Puts the events of one generation together to its whole answer."""

from __future__ import annotations

from collections.abc import Sequence

from common.request import FinishReason, TokenLogprob
from router.generation import GenerateEvent, Usage


class CollectedChoice:
    """One choice so far. Owned by the task that runs the generation."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[TokenLogprob] = []
        self.finish_reason: FinishReason | None = None
        self.stop_token_id: int | None = None
        self.stop_string: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)


class CollectedAnswer:
    """All choices of one prompt."""

    def __init__(self, num_choices: int) -> None:
        self.choices = [CollectedChoice() for _ in range(num_choices)]
        self.prompt_token_ids: tuple[int, ...] = ()
        self.prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self.usage: Usage | None = None

    def add(self, event: GenerateEvent) -> None:
        if event.prompt_token_ids is not None:
            self.prompt_token_ids = event.prompt_token_ids
        if event.prompt_logprobs is not None:
            self.prompt_logprobs = event.prompt_logprobs
        if event.usage is not None:
            self.usage = event.usage
        for delta in event.choices:
            choice = self.choices[delta.index]
            choice.texts.append(delta.text)
            choice.token_ids += delta.token_ids
            choice.logprobs += delta.logprobs
            if delta.finish_reason is not None:
                choice.finish_reason = delta.finish_reason
                choice.stop_token_id, choice.stop_string = delta.stop_token_id, delta.stop_string

    @property
    def num_tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)


def total_usage(usages: Sequence[Usage | None]) -> Usage:
    """The sum over a request's prompts."""
    known = [usage for usage in usages if usage is not None]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in known),
        cached_tokens=sum(usage.cached_tokens for usage in known),
        generated_tokens=sum(usage.generated_tokens for usage in known),
    )
