"""Which calls of a router are for whom, over gRPC."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.errors import PermissionDeniedError, SlipstreamError, UnauthenticatedError
from router.access.api_key import hash_key
from router.access.authenticator import CertificateAuthenticator, KeyAuthenticator, NoAuthenticator
from router.access.call_guard import CallGuard
from router.access.tenant_book import TenantBook

GENERATE = "/slipstream.v1.Inference/Generate"
STATUS = "/slipstream.v1.Admin/Status"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
METHODS = (GENERATE, STATUS, CHECK, WATCH, REFLECTION)


class Call:
    """What a guard asks of a call's context."""

    def __init__(self, *, key: str | None = None, role: str | None = None) -> None:
        self._key = key
        self._role = role

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._key is None else (("authorization", f"Bearer {self._key}"),)

    def auth_context(self) -> dict[str, list[bytes]]:
        if self._role is None:
            return {}
        return {"x509_subject_alternative_name": [b"localhost", f"{self._role}.slipstream.internal".encode()]}


def refusals(guard: CallGuard, call: Any) -> list[type[SlipstreamError] | None]:
    """What each of the methods is answered; None: the call passes."""
    found: list[type[SlipstreamError] | None] = []
    for method in METHODS:
        try:
            guard.check(method, call)
        except (PermissionDeniedError, UnauthenticatedError) as error:
            found.append(type(error))
        else:
            found.append(None)
    return found


ALL = [None] * len(METHODS)
NOT_ADMIN = [None, PermissionDeniedError, None, None, None]


def test_an_open_router_takes_everything() -> None:
    assert refusals(CallGuard(NoAuthenticator()), Call()) == ALL


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("operator", ALL),
        ("client", NOT_ADMIN),
        ("worker", [PermissionDeniedError, PermissionDeniedError, None, PermissionDeniedError, PermissionDeniedError]),
        ("stranger", [UnauthenticatedError, UnauthenticatedError, None, UnauthenticatedError, UnauthenticatedError]),
    ],
)
def test_certificates(role: str, expected: list[type[SlipstreamError] | None]) -> None:
    assert refusals(CallGuard(CertificateAuthenticator()), Call(role=role)) == expected


def test_keys(tmp_path: Path) -> None:
    path = tmp_path / "tenants.toml"
    path.write_text(
        f'[tenants.a]\nkeys = ["{hash_key("key-a")}"]\n'
        f'[tenants.ops]\nkeys = ["{hash_key("key-ops")}"]\noperator = true\n'
    )
    guard = CallGuard(KeyAuthenticator(TenantBook(path)))
    nobody = [UnauthenticatedError, UnauthenticatedError, None, UnauthenticatedError, UnauthenticatedError]
    assert refusals(guard, Call()) == nobody
    assert refusals(guard, Call(key="key-b")) == nobody
    assert refusals(guard, Call(role="operator")) == nobody  # with keys, a certificate says nothing of a tenant
    assert refusals(guard, Call(key="key-a")) == NOT_ADMIN
    assert refusals(guard, Call(key="key-ops")) == ALL
    context: Any = Call(key="key-a")
    tenant = guard.tenant_of(context)
    assert tenant is not None and tenant.name == "a"
