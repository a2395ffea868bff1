"""Who calls: told by an API key, by a certificate, or not asked for, as the router was started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from common.errors import PermissionDeniedError, UnauthenticatedError
from common.net.peer_role import PeerRole
from router.access.tenant import Tenant
from router.access.tenant_book import TenantBook

_CALLERS = frozenset({PeerRole.CLIENT, PeerRole.OPERATOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What came with a call. `authorization` is the header of that name, `roles` those of the peer's certificate."""

    authorization: str | None
    roles: frozenset[PeerRole]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`tenant` is None where nobody is asked for a key. Operators see the fleet, and may change it."""

    tenant: Tenant | None = None
    operator: bool = False

    def check_operator(self) -> None:
        """Raises PermissionDeniedError."""
        if not self.operator:
            raise PermissionDeniedError(
                "this is for operators: call with the key of a tenant that has `operator = true`, or, where there are "
                f"no keys, with a certificate for {PeerRole.OPERATOR.dns_name}"
            )


class Authenticator(Protocol):
    def identify(self, credentials: Credentials) -> Caller:
        """Raises UnauthenticatedError, or PermissionDeniedError for one who is known and has no business here."""
        ...


class NoAuthenticator:
    """Neither keys nor certificates: whoever reaches the router may do everything."""

    def identify(self, credentials: Credentials) -> Caller:
        return Caller(operator=True)


class CertificateAuthenticator:
    """Callers have certificates of the fleet's CA."""

    def identify(self, credentials: Credentials) -> Caller:
        """Raises UnauthenticatedError without a certificate, PermissionDeniedError with that of a worker or router."""
        if not credentials.roles:
            raise UnauthenticatedError(
                f"call with a certificate of the fleet's CA for {PeerRole.CLIENT.dns_name}: this router takes no keys"
            )
        if not credentials.roles & _CALLERS:
            raise PermissionDeniedError(
                f"certificates for {' and '.join(sorted(role.dns_name for role in credentials.roles))} are not for "
                f"calling routers: use one for {PeerRole.CLIENT.dns_name}"
            )
        return Caller(operator=PeerRole.OPERATOR in credentials.roles)


class KeyAuthenticator:
    """Callers have API keys, whatever their certificates say."""

    def __init__(self, book: TenantBook) -> None:
        self._book = book

    def identify(self, credentials: Credentials) -> Caller:
        """Raises UnauthenticatedError."""
        if credentials.authorization is None:
            raise UnauthenticatedError("an API key is needed: send `authorization: Bearer KEY`")
        scheme, _, key = credentials.authorization.strip().partition(" ")
        tenant = self._book.find(key.strip()) if scheme.lower() == "bearer" else None
        if tenant is None:
            raise UnauthenticatedError("this API key is not known here, or not any more")
        return Caller(tenant=tenant, operator=tenant.operator)
