"""What a runner brings back for one sequence of a step."""

from __future__ import annotations

from typing import NamedTuple

from common.request import TokenLogprob


class SampledToken(NamedTuple):
    """A token drawn for one choice; `logprob` when the request asked for logprobs."""

    token_id: int
    logprob: TokenLogprob | None = None


class SequenceResult(NamedTuple):
    """`tokens` has one per choice, none when the chunk does not end the known tokens.

    `prompt_logprobs` are those of the prompt tokens that the chunk's rows predict. `error` says, for people, why
    this sequence alone must fail.
    """

    tokens: tuple[SampledToken, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()
    error: str | None = None
