"""Says in words what is wrong when two processes can't agree on TLS: gRPC tells it in those of its libraries."""

from __future__ import annotations

import logging

import grpc

from common.net.peer_role import PeerRole

# What appears in the details of UNAVAILABLE, and what it means to whoever called.
_MEANINGS = (
    ("certificate has expired", "the certificate there has expired: renew it (`slipstream certs`), and restart it"),
    ("certificate is not yet valid", "the certificate there is not valid yet: do the clocks agree?"),
    ("WRONG_VERSION_NUMBER", "no TLS is spoken there: start it with --tls-dir, or leave --tls-dir out here"),
    (
        "Hostname Verification Check failed",
        "the certificate there is for other names: one of a router must name the host that it is called by "
        f"(`slipstream certs --host`), one of a worker {PeerRole.WORKER.dns_name}",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the certificate there is not of the CA in ca.crt: both ends need certificates of the same CA",
    ),
)
_REJECTED = (
    "the connection was closed before a word was said: is TLS (--tls-dir) on at one end only, or the certificate here "
    "expired or of another CA?"
)


def explain_handshake(details: str) -> str | None:
    """What the details of an UNAVAILABLE call say about certificates, and what to do; None when they say nothing."""
    for mark, meaning in _MEANINGS:
        if mark in details:
            return meaning
    # Only while a connection is made: later it is the peer's end.
    if details.startswith("failed to connect") and details.endswith(("Socket closed", "Connection reset by peer")):
        return _REJECTED
    return None


class HandshakeLog:
    """Logs why a peer can't be called, once for each reason, where its operator must do something about it.

    With `silence`, that it can't be reached at all is such a reason too.
    """

    def __init__(self, logger: logging.Logger, peer: str, *, silence: bool = False) -> None:
        self._logger = logger
        self._peer = peer
        self._silence = silence
        self._told: str | None = None

    def failed(self, error: grpc.aio.AioRpcError) -> None:
        details = error.details() or ""
        denied = error.code() in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
        reason = details if denied else explain_handshake(details)
        if reason is None and self._silence:
            reason = "gives no answer; it is asked again and again"
        if reason is None:
            self._logger.debug("%s: %s", self._peer, details)
        elif reason != self._told:
            self._told = reason
            self._logger.error("%s: %s", self._peer, reason)

    def succeeded(self) -> None:
        self._told = None
