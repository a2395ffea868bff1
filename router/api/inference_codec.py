"""Inference messages to commands, and events to messages."""

from __future__ import annotations

import json
import secrets
from typing import Any

from common.errors import InvalidRequestError
from common.net.sampling_codec import (
    decode_finish_reason,
    decode_sampling,
    encode_finish_reason,
    encode_logprobs,
)
from common.request import SamplingParams
from protos import inference_pb2 as pb
from router.access.tenant import Tenant
from router.generation import (
    ChatPrompt,
    ChoiceDelta,
    GenerateCommand,
    GenerateEvent,
    Prompt,
    ResumedChoice,
    ResumePoint,
    RouteHint,
    TextPrompt,
    TokenPrompt,
)

# Of a caller's wish: more often than this, signs of life would be load of their own.
MIN_HEARTBEAT_S = 0.1


def decode_command(
    request: pb.GenerateRequest,
    time_remaining_s: float | None,
    sampling_defaults: SamplingParams,
    tenant: Tenant | None,
) -> GenerateCommand:
    """Raises InvalidRequestError. Without a request id it gets one."""
    deadlines_s = [time_remaining_s] if time_remaining_s is not None else []
    if request.HasField("deadline_ms"):
        deadlines_s.append(request.deadline_ms / 1000)
    return GenerateCommand(
        request_id=request.request_id or secrets.token_hex(16),
        model=request.model,
        prompt=_decode_prompt(request),
        sampling=decode_sampling(request.sampling, sampling_defaults),
        priority=request.priority,
        deadline_s=min(deadlines_s, default=None),
        ttft_slo_s=request.ttft_slo_ms / 1000 if request.HasField("ttft_slo_ms") else None,
        tpot_slo_s=request.tpot_slo_ms / 1000 if request.HasField("tpot_slo_ms") else None,
        route=RouteHint(
            prefill_worker=request.route.prefill_worker or None,
            decode_worker=request.route.decode_worker or None,
            decode_only=request.route.decode_only,
            exclude=tuple(request.route.exclude),
        ),
        cache_salt=request.cache_salt,
        tenant=tenant,
        return_prompt_token_ids=request.return_prompt_token_ids,
        heartbeat_s=max(request.heartbeat_ms / 1000, MIN_HEARTBEAT_S) if request.HasField("heartbeat_ms") else None,
        resume_from=_decode_resume_point(request.resume_from) if request.HasField("resume_from") else None,
    )


def _decode_resume_point(point: pb.ResumePoint) -> ResumePoint:
    return ResumePoint(
        prompt_digest=point.prompt_digest, choices=tuple(_decode_resumed(choice) for choice in point.choices)
    )


def _decode_resumed(choice: pb.ResumedChoice) -> ResumedChoice:
    try:
        finish_reason = decode_finish_reason(choice.finish_reason)
    except KeyError:
        field = f"resume_from.choices[{choice.index}].finish_reason"
        raise InvalidRequestError(field, f"{choice.finish_reason} is none of this version") from None
    return ResumedChoice(
        index=choice.index,
        token_ids=tuple(choice.token_ids),
        num_text_chars=choice.num_text_chars,
        finish_reason=finish_reason,
    )


def _decode_prompt(request: pb.GenerateRequest) -> Prompt:
    match request.WhichOneof("prompt"):
        case "text":
            return TextPrompt(text=request.text)
        case "token_ids":
            return TokenPrompt(token_ids=tuple(request.token_ids.ids))
        case "chat":
            chat = request.chat
            return ChatPrompt(
                messages=[_decode_message(message) for message in chat.messages],
                add_generation_prompt=chat.add_generation_prompt if chat.HasField("add_generation_prompt") else True,
                tools=_decode_json("chat.tools_json", chat.tools_json, list),
                template_kwargs=_decode_json("chat.template_kwargs_json", chat.template_kwargs_json, dict) or {},
            )
        case _:
            raise InvalidRequestError("prompt", "is missing: set one of text, chat, token_ids")


def _decode_message(message: pb.ChatMessage) -> dict[str, Any]:
    extra = _decode_json("chat.messages.extra_json", message.extra_json, dict) or {}
    return {**extra, "role": message.role, "content": message.content}


def _decode_json(field: str, text: str, kind: type) -> Any:
    if not text:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(field, f"is not JSON that can be read: {error}") from None
    if not isinstance(value, kind):
        raise InvalidRequestError(field, f"must be a JSON {'array' if kind is list else 'object'}")
    return value


def encode_event(message: pb.GenerateResponse, request_id: str, event: GenerateEvent) -> None:
    """Into an empty message. Comes once a token: what is not there is not touched."""
    message.request_id = request_id
    for choice in event.choices:
        _encode_choice(message.choices.add(), choice)
    if event.start is not None:
        message.start.seed = event.start.seed
        message.start.prompt_digest = event.start.prompt_digest
    if event.prompt_logprobs:
        message.prompt_logprobs.extend(encode_logprobs(event.prompt_logprobs))
    if event.prompt_token_ids:
        message.prompt_token_ids.extend(event.prompt_token_ids)
    if event.usage is not None:
        _encode_end(message, event)


def _encode_choice(message: pb.ChoiceDelta, choice: ChoiceDelta) -> None:
    if choice.index:
        message.index = choice.index
    if choice.first_index:
        message.first_index = choice.first_index
    message.token_ids.extend(choice.token_ids)
    message.text = choice.text
    if choice.logprobs:
        message.logprobs.extend(encode_logprobs(choice.logprobs))
    if choice.finish_reason is not None:
        message.finish_reason = encode_finish_reason(choice.finish_reason)
    if choice.stop_token_id is not None:
        message.stop_token_id = choice.stop_token_id
    if choice.stop_string is not None:
        message.stop_string = choice.stop_string


def _encode_end(message: pb.GenerateResponse, event: GenerateEvent) -> None:
    usage, timings, route = event.usage, event.timings, event.route
    assert usage is not None and timings is not None and route is not None
    message.usage.CopyFrom(
        pb.Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            generated_tokens=usage.generated_tokens,
        )
    )
    message.timings.CopyFrom(
        pb.Timings(
            queue_ms=timings.queue_s * 1000,
            prefill_ms=timings.prefill_s * 1000,
            transfer_ms=timings.transfer_s * 1000,
            ttft_ms=timings.ttft_s * 1000,
            token_1_to_2_ms=timings.token_1_to_2_s * 1000,
            total_ms=timings.total_s * 1000,
        )
    )
    message.route.CopyFrom(
        pb.RouteTaken(
            prefill_worker=route.prefill_worker or "",
            decode_worker=route.decode_worker or "",
            attempts=route.attempts,
            transferred_bytes=route.transferred_bytes,
            transferred_blocks=route.transferred_blocks,
            decode_cached_blocks=route.decode_cached_blocks,
            preemptions=route.preemptions,
        )
    )
