"""Errors on the wire: one gRPC status per class, details in trailing metadata."""

from __future__ import annotations

from typing import Any

import grpc

from common.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ModelNotFoundError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    RequestCancelledError,
    SlipstreamError,
    StaleTicketError,
    Status,
    TransferError,
    UnauthenticatedError,
    UnavailableError,
)
from common.net.handshake import explain_handshake

# gRPC takes 8 KiB of metadata for granted.
MAX_MESSAGE_CHARS = 900
MAX_FIELD_CHARS = 100
# What grpc.aio says, with INTERNAL, of a stream that ended while something was being written to it.
BROKEN_STREAM = "Internal error from Core"
FIELD_KEY = "slipstream-field"
RETRY_AFTER_MS_KEY = "slipstream-retry-after-ms"


def code_of(error: SlipstreamError) -> grpc.StatusCode:
    """The gRPC code of an error."""
    return grpc.StatusCode[error.status.value]


def message_of(error: SlipstreamError) -> str:
    """The error's text, cut to what a status may carry: a longer one would become another status on its way."""
    text = str(error)
    # Percent-encoded, an ASCII character takes up to 3 bytes of the metadata, any other one up to 12.
    max_chars = MAX_MESSAGE_CHARS if text.isascii() else MAX_MESSAGE_CHARS // 4
    return text if len(text) <= max_chars else f"{text[:max_chars]}..."


def details_of(error: SlipstreamError) -> tuple[tuple[str, str], ...]:
    """Trailing metadata that tells a program what the message tells a person."""
    pairs: list[tuple[str, str]] = []
    field = getattr(error, "field", None)
    if field is not None:
        pairs.append((FIELD_KEY, str(field)[:MAX_FIELD_CHARS].encode("ascii", "backslashreplace").decode()))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        pairs.append((RETRY_AFTER_MS_KEY, str(int(retry_after_s * 1000))))
    return tuple(pairs)


def error_from_call(error: grpc.aio.AioRpcError) -> SlipstreamError:
    """The domain error that a peer's status stands for."""
    metadata: dict[str, Any] = dict(error.trailing_metadata() or ())
    details = error.details() or ""
    return error_from_status(
        error.code().name,
        (explain_handshake(details) if error.code() is grpc.StatusCode.UNAVAILABLE else None) or details,
        field=metadata.get(FIELD_KEY),
        retry_after_s=float(metadata.get(RETRY_AFTER_MS_KEY, 1000)) / 1000,
    )


def error_from_status(
    status: str, message: str, *, field: str | None = None, retry_after_s: float = 1.0
) -> SlipstreamError:
    """The domain error for a status name such as RESOURCE_EXHAUSTED."""
    match status:
        case Status.INTERNAL if message == BROKEN_STREAM:
            return UnavailableError("the connection broke")
        case Status.INVALID_ARGUMENT:
            name = field or "request"
            return InvalidRequestError(name, message.removeprefix(f"{name}: "))
        case Status.NOT_FOUND if field not in (None, "model"):
            return NotFoundError(str(field), message.removeprefix(f"{field}: "))
        case Status.NOT_FOUND:
            error = ModelNotFoundError("", ())
            error.args = (message,)
            return error
        case Status.RESOURCE_EXHAUSTED:
            return OverloadedError(message, retry_after_s)
        case Status.UNAUTHENTICATED:
            return UnauthenticatedError(message)
        case Status.PERMISSION_DENIED:
            return PermissionDeniedError(message)
        case Status.DEADLINE_EXCEEDED:
            return DeadlineExceededError(message)
        case Status.CANCELLED:
            return RequestCancelledError(message)
        case Status.UNAVAILABLE:
            return UnavailableError(message)
        case Status.FAILED_PRECONDITION:
            return StaleTicketError(message)
        case Status.DATA_LOSS:
            return TransferError(message)
        case _:
            return SlipstreamError(message)
