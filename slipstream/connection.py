"""What both clients share about reaching routers: addresses, limits, turns, errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from common.address import check_address
from common.errors import InvalidRequestError, NotFoundError, SlipstreamError, UnavailableError
from common.net.handshake import explain_handshake
from common.net.status import FIELD_KEY, RETRY_AFTER_MS_KEY, error_from_status

DEFAULT_TARGET = "127.0.0.1:50051"
DEFAULT_TIMEOUT_S = 600.0
# Status, model list and the like answer at once or not at all.
CONTROL_TIMEOUT_S = 30.0
# The server ends a request at its deadline with what there is to say; the call's own deadline is a little later.
DEADLINE_GRACE_S = 2.0
MAX_MESSAGE_BYTES = 64 * 2**20
CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


# What gRPC's core says, in the details of UNAVAILABLE, when it was no server that said it.
_NO_CONNECTION = ("failed to connect to all addresses", "connections to all backends failing")
_NO_NAME = ("errors resolving", "DNS resolution failed", "Name resolution failure")
_LOST = ("Socket closed", "recvmsg:", "sendmsg:", "GOAWAY received", "keepalive watchdog", "Stream removed")


class RouterUnreachableError(UnavailableError):
    """There is no connection to a router, or it broke."""


class HandshakeError(RouterUnreachableError):
    """A router is there, and the two can't agree on TLS."""


class Targets:
    """The routers of one client, by turns: each call begins with the next one and goes on to the others."""

    def __init__(self, target: str | Sequence[str]) -> None:
        """Raises ValueError when `target` has no address, or one that is not host:port."""
        self.addresses = (target,) if isinstance(target, str) else tuple(target)
        if not self.addresses:
            raise ValueError("target: must be at least one host:port")
        for address in self.addresses:
            try:
                check_address(address)
            except ValueError as error:
                raise ValueError(f"target: {error}") from None
        self._turn = itertools.count()

    def in_turn(self) -> Iterator[int]:
        """Indices of all addresses, once each."""
        count = len(self.addresses)
        first = next(self._turn) % count
        return ((first + step) % count for step in range(count))


def call_timeout_s(timeout_s: float, deadline_ms: int | None) -> float:
    """Seconds that a Generate call may take."""
    return timeout_s if deadline_ms is None else min(timeout_s, deadline_ms / 1000 + DEADLINE_GRACE_S)


def is_unavailable(error: grpc.RpcError) -> bool:
    """Whether another router may do better."""
    return bool(_code(error) is grpc.StatusCode.UNAVAILABLE)


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
        return UnavailableError(f"{address}: {details}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in details:
        return InvalidRequestError("prompt", f"the request is too large: {details}")
    retry_after_s = float(metadata.get(RETRY_AFTER_MS_KEY, 1000)) / 1000
    return error_from_status(code.name, details, field=metadata.get(FIELD_KEY), retry_after_s=retry_after_s)


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
