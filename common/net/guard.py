"""Who may call what: asked before a call's request is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from common.errors import PermissionDeniedError
from common.net.peer_role import PeerRole, roles_of

Context = grpc.aio.ServicerContext[Any, Any]

HEALTH_SERVICE: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
REFLECTION_SERVICE: str = reflection.SERVICE_NAME


class Guard(Protocol):
    def check(self, method: str, context: Context) -> None:
        """`method` is `/package.Service/Method`. Raises UnauthenticatedError or PermissionDeniedError."""
        ...


class RoleGuard:
    """Lets a call pass when the peer's certificate has a role that its service takes.

    Health and reflection take any role; a service that is not listed takes none.
    """

    def __init__(self, roles_by_service: Mapping[str, frozenset[PeerRole]]) -> None:
        anyone = frozenset(PeerRole)
        self._roles_by_service = {HEALTH_SERVICE: anyone, REFLECTION_SERVICE: anyone, **roles_by_service}

    def check(self, method: str, context: Context) -> None:
        """Raises PermissionDeniedError."""
        service = service_of(method)
        allowed = self._roles_by_service.get(service, frozenset[PeerRole]())
        roles = peer_roles(context)
        if not roles & allowed:
            raise PermissionDeniedError(
                f"{service} is for {_listed(allowed)}; the caller's certificate says {_listed(roles)}"
            )


def service_of(method: str) -> str:
    """`package.Service` of `/package.Service/Method`."""
    return method.split("/")[1]


def peer_roles(context: Context) -> frozenset[PeerRole]:
    """The roles that the peer's certificate gives it; none without a certificate."""
    names: Any = context.auth_context().get("x509_subject_alternative_name", ())
    return roles_of(name.decode(errors="replace") for name in names)


def _listed(roles: frozenset[PeerRole]) -> str:
    return " or ".join(sorted(role.dns_name for role in roles)) or "nobody"
