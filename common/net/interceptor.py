"""The one place where an error becomes a gRPC status."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc

from common.errors import SlipstreamError, Status
from common.net.status import code_of, details_of

logger = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Maps SlipstreamError to its status; anything else is a bug of ours: INTERNAL, and logged with its stack."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        if handler.unary_unary or handler.stream_unary:
            return _wrap_single(handler, method)
        return _wrap_stream(handler, method)


def _wrap_single(handler: Handler, method: str) -> Handler:
    inner: Any = handler.unary_unary or handler.stream_unary
    assert inner is not None

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        async with _mapped(context, method):
            return await inner(request, context)

    make: Any = grpc.unary_unary_rpc_method_handler if handler.unary_unary else grpc.stream_unary_rpc_method_handler
    wrapped: Handler = make(
        call, request_deserializer=handler.request_deserializer, response_serializer=handler.response_serializer
    )
    return wrapped


def _wrap_stream(handler: Handler, method: str) -> Handler:
    inner: Any = handler.unary_stream or handler.stream_stream
    assert inner is not None

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        async with _mapped(context, method):
            result: Any = inner(request, context)
            if hasattr(result, "__aiter__"):
                try:
                    async for message in result:
                        await context.write(message)
                finally:
                    await result.aclose()
            else:
                await result

    make: Any = grpc.unary_stream_rpc_method_handler if handler.unary_stream else grpc.stream_stream_rpc_method_handler
    wrapped: Handler = make(
        call,
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
    return wrapped


@asynccontextmanager
async def _mapped(context: grpc.aio.ServicerContext[Any, Any], method: str) -> AsyncIterator[None]:
    try:
        yield
    except SlipstreamError as error:
        if error.status is Status.INTERNAL:
            logger.error("%s failed", method, exc_info=error)
        await context.abort(code_of(error), str(error), details_of(error))
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except Exception as error:
        logger.error("%s failed", method, exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}: {error}")
