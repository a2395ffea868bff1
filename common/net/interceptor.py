"""The one place where an error becomes a gRPC status."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from common.errors import InvalidRequestError, SlipstreamError, Status
from common.net.guard import Guard
from common.net.malformed import find_malformed_field
from common.net.status import code_of, details_of, message_of

logger = logging.getLogger(__name__)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Maps SlipstreamError to its status; anything else is a bug of ours: INTERNAL, and logged with its stack.

    `guard` is asked before anything of a call is read.
    """

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard

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
            return _wrap_single(handler, method, self._guard)
        return _wrap_stream(handler, method, self._guard)


def _wrap_single(handler: Handler, method: str, guard: Guard | None) -> Handler:
    inner: Any = handler.unary_unary or handler.stream_unary
    assert inner is not None
    read, deserializer = _reading(handler)

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        async with _mapped(context, method, guard):
            return await inner(read(request), context)

    make: Any = grpc.unary_unary_rpc_method_handler if handler.unary_unary else grpc.stream_unary_rpc_method_handler
    wrapped: Handler = make(call, request_deserializer=deserializer, response_serializer=handler.response_serializer)
    return wrapped


def _wrap_stream(handler: Handler, method: str, guard: Guard | None) -> Handler:
    inner: Any = handler.unary_stream or handler.stream_stream
    assert inner is not None
    read, deserializer = _reading(handler)

    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        async with _mapped(context, method, guard):
            result: Any = inner(read(request), context)
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
        request_deserializer=deserializer,
        response_serializer=handler.response_serializer,
    )
    return wrapped


def _reading(handler: Handler) -> tuple[Callable[[Any], Any], Any]:
    """How the wrapped call reads its request, and what gRPC is left to deserialise.

    gRPC answers UNKNOWN when its deserialiser raises, so single requests are deserialised inside the mapping.
    """
    deserialize = handler.request_deserializer
    if handler.request_streaming or deserialize is None:
        return lambda request: request, deserialize
    message_type = getattr(deserialize, "__self__", None)

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            descriptor = getattr(message_type, "DESCRIPTOR", None)
            field = None if descriptor is None else find_malformed_field(data, descriptor)
            name = field or (descriptor.name if descriptor is not None else "request")
            raise InvalidRequestError(name, f"can't be read: {error}") from error

    return read, None


@asynccontextmanager
async def _mapped(context: grpc.aio.ServicerContext[Any, Any], method: str, guard: Guard | None) -> AsyncIterator[None]:
    try:
        if guard is not None:
            guard.check(method, context)
        yield
    except SlipstreamError as error:
        if error.status is Status.INTERNAL:
            logger.error("%s failed", method, exc_info=error)
        await context.abort(code_of(error), message_of(error), details_of(error))
    except (grpc.aio.AbortError, grpc.aio.BaseError):
        raise
    except DecodeError as error:  # of a stream's message: gRPC reads those only when they are asked for
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"a message can't be read: {error}")
    except NotImplementedError:  # a method of the service that this process has no use for
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{method} is not for this process")
    except Exception as error:
        logger.error("%s failed", method, exc_info=error)
        await context.abort(grpc.StatusCode.INTERNAL, f"internal error: {type(error).__name__}: {error}")
