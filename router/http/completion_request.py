"""`POST /v1/completions`, decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from common.request import SamplingParams
from router.generation import TextPrompt, TokenPrompt
from router.http.fields import Fields
from router.http.sampling_fields import (
    NEUTRAL,
    Scheduling,
    Streaming,
    decode_sampling,
    decode_scheduling,
    decode_streaming,
    refuse_unsupported,
)

MAX_PROMPTS = 256
DEFAULT_MAX_TOKENS = 16  # OpenAI's and vLLM's


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """One request of one or several prompts. Choices are numbered prompt by prompt."""

    model: str
    prompts: tuple[TextPrompt | TokenPrompt, ...]
    sampling: SamplingParams
    scheduling: Scheduling
    streaming: Streaming
    echo: bool = False
    return_token_ids: bool = False
    unknown_fields: tuple[str, ...] = ()

    @classmethod
    def decode(cls, body: Mapping[str, Any], sampling_defaults: SamplingParams = NEUTRAL) -> CompletionRequest:
        """`sampling_defaults`: the model's own. Raises InvalidRequestError that names the field."""
        fields = Fields(body)
        request = cls(
            model=fields.text("model") or "",
            prompts=_prompts(fields),
            sampling=decode_sampling(
                fields, sampling_defaults, max_tokens=_max_tokens(fields), logprobs=fields.integer("logprobs")
            ),
            scheduling=decode_scheduling(fields),
            streaming=decode_streaming(fields),
            echo=fields.flag("echo") or False,
            return_token_ids=fields.flag("return_token_ids") or False,
        )
        _refuse(fields, request)
        return replace(request, unknown_fields=fields.end())


def _max_tokens(fields: Fields) -> int | None:
    # An explicit null asks for as many as the model's length allows, as in vLLM.
    return fields.integer("max_tokens") if fields.is_given("max_tokens") else DEFAULT_MAX_TOKENS


def _refuse(fields: Fields, request: CompletionRequest) -> None:
    refuse_unsupported(fields)
    best_of = fields.integer("best_of")
    if best_of is not None and best_of != request.sampling.n:
        raise fields.wrong("best_of", f"must equal n ({request.sampling.n}) or be absent", best_of)
    if fields.text("suffix"):
        raise fields.refused("suffix", "filling in the middle is not supported")
    if fields.raw("prompt_embeds") is not None:
        raise fields.refused("prompt_embeds", "is not supported")
    if request.echo and request.sampling.logprobs is not None:
        raise fields.refused("echo", "can't be combined with logprobs; prompt_logprobs tells the prompt's")
    if request.streaming.stream and request.sampling.prompt_logprobs is not None:
        raise fields.refused("prompt_logprobs", "can't be combined with stream: true")


def _prompts(fields: Fields) -> tuple[TextPrompt | TokenPrompt, ...]:
    value = fields.raw("prompt")
    if value is None:
        raise fields.refused("prompt", "is required")
    if isinstance(value, str):
        return (TextPrompt(text=value),)
    if not isinstance(value, list):
        raise fields.wrong("prompt", "must be a string or an array", value)
    if not value:
        raise fields.refused("prompt", "must not be empty")
    if isinstance(value[0], int):
        return (_token_prompt(fields, value),)
    if len(value) > MAX_PROMPTS:
        raise fields.refused("prompt", f"at most {MAX_PROMPTS} prompts, got {len(value)}")
    if isinstance(value[0], str):
        return tuple(TextPrompt(text=text) for text in fields.texts("prompt"))
    return tuple(_token_prompt(fields, token_ids) for token_ids in value)


def _token_prompt(fields: Fields, value: Any) -> TokenPrompt:
    if not isinstance(value, list):
        raise fields.wrong("prompt", "must be a string, token ids, or an array of either", value)
    if not value:
        raise fields.refused("prompt", "must not be empty")
    for token_id in value:
        # Not isinstance: true is an int, and is no token id.
        if type(token_id) is not int:
            raise fields.wrong("prompt", "must hold token ids", token_id)
        if not 0 <= token_id < 2**31:
            raise fields.wrong("prompt", "token ids must be from 0 to 2147483647", token_id)
    return TokenPrompt(token_ids=tuple(value))
