"""What an HTTP request says about its caller: the key that it carries, and the certificate of its connection."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

from common.net.peer_role import PeerRole, roles_of
from router.access.authenticator import Credentials

_ROLES = "peer_roles"


class TlsProtocol(H11Protocol):
    """Uvicorn's HTTP over TLS, which puts the roles of the peer's certificate into the state of each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate: dict[str, Any] = transport.get_extra_info("peercert") or {}
        names = [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]
        self.app_state = {**self.app_state, _ROLES: roles_of(names)}


def credentials_of(request: Request) -> Credentials:
    roles: frozenset[PeerRole] = request.scope.get("state", {}).get(_ROLES, frozenset())
    return Credentials(authorization=request.headers.get("authorization"), roles=roles)
