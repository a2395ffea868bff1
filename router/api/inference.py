"""The Inference service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import grpc

from common.errors import RequestCancelledError
from common.net.patience import Patience
from common.net.sampling_codec import NEUTRAL
from common.request import SamplingParams
from protos import inference_pb2 as pb
from protos import inference_pb2_grpc
from router.access.tenant import Tenant
from router.answer import MAX_UNREAD_S
from router.api.inference_codec import decode_command, encode_event
from router.api.session import AnswerSession
from router.generation import AnswerFeed, Generator, events_of

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
        tenant = self._tenant_of(context)
        command = decode_command(request, context.time_remaining(), self._sampling_defaults, tenant)
        patience = Patience(MAX_UNREAD_S)
        try:
            async with aclosing(events_of(self._generator, command)) as events:
                async for event in events:
                    message = pb.GenerateResponse()
                    encode_event(message, command.request_id, event)
                    try:
                        # A caller that takes nothing fills the flow-control window: then writing waits.
                        with patience:
                            await context.write(message)
                    except TimeoutError:
                        raise RequestCancelledError(f"the caller has read nothing for {MAX_UNREAD_S:.0f} s") from None
        finally:
            patience.close()

    async def Session(self, request_iterator: AsyncIterator[pb.SessionRequest], context: Context) -> None:
        tenant = self._tenant_of(context)
        await context.send_initial_metadata(())  # the caller waits for it

        def begin(request: pb.GenerateRequest, timeout_s: float | None, on_news: Callable[[], None]) -> AnswerFeed:
            command = decode_command(request, timeout_s, self._sampling_defaults, tenant)
            return self._generator.begin(command, on_news)

        await AnswerSession(context, begin, self._closing).run(request_iterator)

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
