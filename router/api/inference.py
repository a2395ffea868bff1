"""The Inference service."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from common.errors import InvalidRequestError, RequestCancelledError
from common.net.patience import Patience
from common.net.sampling_codec import (
    NEUTRAL,
    decode_finish_reason,
    decode_sampling,
    encode_finish_reason,
    encode_logprobs,
)
from common.request import SamplingParams
from protos import inference_pb2 as pb
from protos import inference_pb2_grpc
from router.access.tenant import Tenant
from router.answer import MAX_UNREAD_S
from router.api.session import AnswerSession
from router.generation import (
    ChatPrompt,
    ChoiceDelta,
    GenerateCommand,
    GenerateEvent,
    Generator,
    Prompt,
    ResumedChoice,
    ResumePoint,
    RouteHint,
    TextPrompt,
    TokenPrompt,
)

# Of a caller's wish: more often than this, signs of life would be load of their own.
MIN_HEARTBEAT_S = 0.1

Context = grpc.aio.ServicerContext[Any, Any]


class InferenceServicer(inference_pb2_grpc.InferenceServicer):
    """`sampling_defaults`: the model's own, for what a caller leaves open. `tenant_of`: whose a call is. `closing`:
    sessions without an answer are to end."""

    def __init__(
        self,
        generator: Generator,
        sampling_defaults: SamplingParams = NEUTRAL,
        tenant_of: Callable[[Context], Tenant | None] = lambda context: None,
        closing: asyncio.Event | None = None,
    ) -> None:
        self._tenant_of = tenant_of
        self._generator = generator
        self._sampling_defaults = sampling_defaults
        self._closing = closing or asyncio.Event()

    async def Generate(self, request: pb.GenerateRequest, context: Context) -> None:
        messages = self._answer(request, context.time_remaining(), self._tenant_of(context))
        patience = Patience(MAX_UNREAD_S)
        try:
            async for message in messages:
                try:
                    # A caller that takes nothing fills the flow-control window: then writing waits.
                    with patience:
                        await context.write(message)
                except TimeoutError:
                    raise RequestCancelledError(f"the caller has read nothing for {MAX_UNREAD_S:.0f} s") from None
        finally:
            patience.close()
            await messages.aclose()

    async def Session(self, request_iterator: AsyncIterator[pb.SessionRequest], context: Context) -> None:
        tenant = self._tenant_of(context)
        await context.send_initial_metadata(())  # the caller waits for it
        session = AnswerSession(
            context, lambda request, timeout_s: self._answer(request, timeout_s, tenant), self._closing
        )
        await session.run(request_iterator)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        cards = self._generator.models()
        return pb.ListModelsResponse(
            models=[
                pb.ModelCard(
                    id=card.id,
                    max_model_len=card.max_model_len or 0,
                    vocab_size=card.vocab_size or 0,
                    created_s=card.created_s,
                )
                for card in cards
            ]
        )

    async def _answer(
        self, request: pb.GenerateRequest, timeout_s: float | None, tenant: Tenant | None
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        command = _decode(request, timeout_s, self._sampling_defaults, tenant=tenant)
        async with aclosing(self._generator.generate(command)) as events:
            async for event in events:
                yield _encode(command.request_id, event)


def _decode(
    request: pb.GenerateRequest,
    time_remaining_s: float | None,
    sampling_defaults: SamplingParams,
    *,
    tenant: Tenant | None,
) -> GenerateCommand:
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


def _encode(request_id: str, event: GenerateEvent) -> pb.GenerateResponse:
    message = pb.GenerateResponse(request_id=request_id, choices=[_encode_choice(choice) for choice in event.choices])
    if event.prompt_logprobs:
        message.prompt_logprobs.extend(encode_logprobs(event.prompt_logprobs))
    if event.prompt_token_ids:
        message.prompt_token_ids.extend(event.prompt_token_ids)
    if event.start is not None:
        message.start.CopyFrom(pb.AnswerStart(seed=event.start.seed, prompt_digest=event.start.prompt_digest))
    if event.usage is not None:
        message.usage.CopyFrom(
            pb.Usage(
                prompt_tokens=event.usage.prompt_tokens,
                cached_tokens=event.usage.cached_tokens,
                generated_tokens=event.usage.generated_tokens,
            )
        )
    if event.timings is not None:
        timings = event.timings
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
    if event.route is not None:
        route = event.route
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
    return message


def _encode_choice(choice: ChoiceDelta) -> pb.ChoiceDelta:
    return pb.ChoiceDelta(
        index=choice.index,
        first_index=choice.first_index,
        token_ids=choice.token_ids,
        text=choice.text,
        logprobs=encode_logprobs(choice.logprobs) if choice.logprobs else (),
        finish_reason=encode_finish_reason(choice.finish_reason),
        stop_token_id=choice.stop_token_id,
        stop_string=choice.stop_string,
    )
