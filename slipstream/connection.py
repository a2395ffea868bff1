"""What both clients share about a connection to a router: its options, its limits, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from common.errors import InvalidRequestError, NotFoundError, SlipstreamError, UnavailableError
from common.net.handshake import explain_handshake
from common.net.status import BROKEN_STREAM, FIELD_KEY, RETRY_AFTER_MS_KEY, error_from_status

DEFAULT_TARGET = "127.0.0.1:50051"
DEFAULT_TIMEOUT_S = 600.0
# Status, model list and the like answer at once or not at all.
CONTROL_TIMEOUT_S = 30.0
# The router ends a request at its deadline with what there is to say; the call's own deadline is a little later.
DEADLINE_GRACE_S = 2.0
# A router from which nothing comes for so long, not even the signs of life that are asked of it, is given up.
DEFAULT_SILENCE_S = 5.0
HEARTBEATS_PER_SILENCE = 4
# A begun answer looks so long for a router that goes on with it.
DEFAULT_RESUME_S = 30.0
MAX_MESSAGE_BYTES = 64 * 2**20
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Also without calls: whatever stands between forgets connections on which nothing moves, and says nothing.
    # A router takes pings every 5 s or more; most of what forgets does so after a minute or more.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A channel that is opened in place of a silent one must not be given the silent one's connection.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


# What gRPC's core says, in the details of UNAVAILABLE, when it was no server that said it.
_NO_CONNECTION = ("failed to connect to all addresses", "connections to all backends failing")
_NO_NAME = ("errors resolving", "DNS resolution failed", "Name resolution failure")
_LOST = (
    "Socket closed",
    "recvmsg:",
    "sendmsg:",
    "GOAWAY received",
    "keepalive watchdog",
    "ping timeout",
    "Stream removed",
    "Received RST_STREAM",
    BROKEN_STREAM,
)


class RouterUnreachableError(UnavailableError):
    """There is no connection to a router, or it broke."""


class HandshakeError(RouterUnreachableError):
    """A router is there, and the two can't agree on TLS."""


class RouterSilentError(UnavailableError):
    """A router is connected and says nothing: it is frozen, or the connection leads nowhere any more."""

    def __init__(self, address: str, silence_s: float) -> None:
        super().__init__(f"{address}: nothing came for {silence_s:g} s")


def error_of(error: grpc.RpcError, address: str) -> SlipstreamError:
    """The error that a failed call stands for. Messages of the connection itself name the address."""
    call: Any = error  # both clients' errors are calls, which the stubs don't say
    code, details = _code(error), call.details() or ""
    metadata = {str(key): _text(value) for key, value in call.trailing_metadata() or ()}
    if code is grpc.StatusCode.UNAVAILABLE:
        if (explained := explain_handshake(details)) is not None:
            return HandshakeError(f"{address}: {explained}")
        failure = _connection_failure(details)
        if failure is not None:
            return RouterUnreachableError(f"{address}: {failure}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return InvalidRequestError("prompt", f"is too large: a request may have {MAX_MESSAGE_BYTES >> 20} MiB")
    if code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL) and _connection_failure(details) is not None:
        return RouterUnreachableError(f"{address}: {_connection_failure(details)}")
    retry_after_ms = metadata.get(RETRY_AFTER_MS_KEY)
    retry_after_s = None if retry_after_ms is None else float(retry_after_ms) / 1000
    return error_of_status(code.name, details, address, field=metadata.get(FIELD_KEY), retry_after_s=retry_after_s)


def error_of_status(
    status: str, message: str, address: str, *, field: str | None, retry_after_s: float | None
) -> SlipstreamError:
    """The error that a router's own words stand for; `status` is the name of a gRPC status."""
    if status == grpc.StatusCode.UNAVAILABLE.name:
        return UnavailableError(f"{address}: {message}")
    return error_from_status(
        status, message, field=field, retry_after_s=1.0 if retry_after_s is None else retry_after_s
    )


def none_answers(refusals: Sequence[SlipstreamError]) -> SlipstreamError:
    """The error when every router was tried in vain."""
    for refused in refusals:
        if isinstance(refused, NotFoundError):
            return refused  # those that answer don't know it
    message = "; ".join(str(refused) for refused in refusals)
    if any(isinstance(refused, HandshakeError) for refused in refusals):
        return HandshakeError(message)
    if all(isinstance(refused, RouterUnreachableError) for refused in refusals):
        return RouterUnreachableError(message)
    return UnavailableError(message)


def _connection_failure(details: str) -> str | None:
    """What is wrong with the connection, in a few words; None when a server sent these details."""
    if details.startswith(_NO_CONNECTION):
        # "…; last error: UNKNOWN: ipv4:…:1: Failed to connect to remote host: connect: Connection refused (111)"
        reason = details.rpartition(": ")[2].partition(" (")[0]
        if "HTTP/2" in reason:
            return "no gRPC is spoken there: is it the port of the HTTP API?"
        return reason[:1].lower() + reason[1:]
    if details.startswith(_NO_NAME):
        return "this name has no address"
    return "the connection broke" if details.startswith(_LOST) else None


def _code(error: grpc.RpcError) -> grpc.StatusCode:
    call: Any = error
    code: grpc.StatusCode = call.code()
    return code


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
