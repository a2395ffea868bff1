"""Who may call a router's gRPC services."""

from __future__ import annotations

from typing import Any

import grpc

from common.net.guard import HEALTH_SERVICE, peer_roles, service_of
from router.access.authenticator import Authenticator, Credentials
from router.access.tenant import Tenant

Context = grpc.aio.ServicerContext[Any, Any]

ADMIN_SERVICE = "slipstream.v1.Admin"
HEALTH_CHECK = f"/{HEALTH_SERVICE}/Check"


class CallGuard:
    """Implements `common.net.guard.Guard`.

    A health check is for all who reach the server: load balancers have no key. Watching health is not, since it holds
    a call for as long as it likes.
    """

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    def check(self, method: str, context: Context) -> None:
        """Raises UnauthenticatedError or PermissionDeniedError."""
        if method == HEALTH_CHECK:
            return
        service = service_of(method)
        caller = self._authenticator.identify(_credentials(context))
        if service == ADMIN_SERVICE:
            caller.check_operator()

    def tenant_of(self, context: Context) -> Tenant | None:
        """Whose a call is that has passed. Raises UnauthenticatedError when its key was withdrawn meanwhile."""
        return self._authenticator.identify(_credentials(context)).tenant


def _credentials(context: Context) -> Credentials:
    given = next((value for key, value in context.invocation_metadata() or () if key == "authorization"), None)
    authorization = given.decode(errors="replace") if isinstance(given, bytes) else given
    return Credentials(authorization=authorization, roles=peer_roles(context))
