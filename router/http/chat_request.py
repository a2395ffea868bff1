"""`POST /v1/chat/completions`, decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.request import SamplingParams
from router.generation import ChatPrompt
from router.http.chat_messages import decode_messages
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One chat request. Without a limit the answer may be as long as the model allows."""

    model: str
    prompt: ChatPrompt
    sampling: SamplingParams
    scheduling: Scheduling
    streaming: Streaming
    return_token_ids: bool = False
    unknown_fields: tuple[str, ...] = ()

    @classmethod
    def decode(cls, body: Mapping[str, Any], sampling_defaults: SamplingParams = NEUTRAL) -> ChatRequest:
        """`sampling_defaults`: the model's own. Raises InvalidRequestError that names the field."""
        fields = Fields(body)
        request = cls(
            model=fields.text("model") or "",
            prompt=_prompt(fields),
            sampling=decode_sampling(
                fields, sampling_defaults, max_tokens=_max_tokens(fields), logprobs=_logprobs(fields)
            ),
            scheduling=decode_scheduling(fields),
            streaming=decode_streaming(fields),
            return_token_ids=fields.flag("return_token_ids") or False,
        )
        _refuse(fields, request)
        return replace(request, unknown_fields=fields.end())


def _max_tokens(fields: Fields) -> int | None:
    # max_tokens is the older name; the newer one wins, as in vLLM.
    newer, older = fields.integer("max_completion_tokens"), fields.integer("max_tokens")
    if newer is not None and newer < 1:
        raise fields.wrong("max_completion_tokens", "must be at least 1", newer)
    return older if newer is None else newer


def _logprobs(fields: Fields) -> int | None:
    wanted, top = fields.flag("logprobs") or False, fields.integer("top_logprobs")
    if top is not None and not 0 <= top <= 20:
        raise fields.wrong("top_logprobs", "must be from 0 to 20", top)
    if top and not wanted:
        raise fields.refused("top_logprobs", "needs logprobs: true")
    return (top or 0) if wanted else None


def _prompt(fields: Fields) -> ChatPrompt:
    messages = fields.items("messages")
    if messages is None:
        raise fields.refused("messages", "is required")
    if not messages:
        raise fields.refused("messages", "must hold at least one message")
    add_generation_prompt = fields.flag("add_generation_prompt")
    return ChatPrompt(
        messages=decode_messages(messages),
        add_generation_prompt=True if add_generation_prompt is None else add_generation_prompt,
        tools=_tools(fields),
        template_kwargs=fields.mapping("chat_template_kwargs") or {},
    )


def _tools(fields: Fields) -> Sequence[Mapping[str, Any]] | None:
    """Tool definitions for the template. The answer comes as text: calls in it are not parsed."""
    choice = fields.raw("tool_choice")
    if choice not in (None, "none", "auto"):
        raise fields.wrong("tool_choice", "must be none or auto", choice)
    tools = fields.items("tools")
    if not tools:
        return None
    for tool in tools:
        if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
            raise fields.wrong("tools", "must hold objects with a function", tool)
    return tools


def _refuse(fields: Fields, request: ChatRequest) -> None:
    refuse_unsupported(fields)
    if request.streaming.stream and request.sampling.prompt_logprobs is not None:
        raise fields.refused("prompt_logprobs", "can't be combined with stream: true")
    modalities = fields.items("modalities")
    if modalities is not None and list(modalities) != ["text"]:
        raise fields.refused("modalities", "only text is supported")
    for name in ("audio", "functions", "function_call", "continue_final_message", "echo", "chat_template", "documents"):
        if fields.raw(name):
            raise fields.refused(name, "is not supported")
    if fields.raw("web_search_options") is not None:  # an empty object asks for a search too
        raise fields.refused("web_search_options", "is not supported")
    if fields.flag("parallel_tool_calls") is False and request.prompt.tools:
        raise fields.refused("parallel_tool_calls", "the model can't be held to one call")
    for name, neutral in (("reasoning_effort", ("none", "medium")), ("verbosity", ("medium",))):
        if (value := fields.text(name)) is not None and value not in neutral:
            why = f"only {' or '.join(neutral)} is supported; what the chat template takes goes in chat_template_kwargs"
            raise fields.wrong(name, why, value)
