"""How one router lets callers in: made from its settings, shared by its gRPC and HTTP front ends."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from common.address import is_loopback
from common.config import RouterConfig
from common.net.peer_role import PeerRole
from common.net.tls import TlsIdentity
from common.net.tls_folder import load_identity
from router.access.authenticator import Authenticator, CertificateAuthenticator, KeyAuthenticator, NoAuthenticator
from router.access.tenant_book import TenantBook
from router.access.tenant_limits import TenantLimits

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`book` is None where no keys are asked for."""

    tls: TlsIdentity | None
    book: TenantBook | None
    authenticator: Authenticator
    limits: TenantLimits

    @classmethod
    def from_config(cls, config: RouterConfig) -> Access:
        """Raises ConfigError."""
        tls_dir = config.process.tls_dir
        tls = None if tls_dir is None else load_identity(tls_dir, PeerRole.ROUTER)
        book = None if config.api_keys is None else TenantBook(Path(config.api_keys))
        if book is not None and tls is None and not is_loopback(config.host):
            logger.warning("API keys travel in the clear: give --tls-dir, or let a proxy in front of it speak TLS")
        return cls(tls=tls, book=book, authenticator=_authenticator(tls, book), limits=TenantLimits())

    @property
    def require_client_certificate(self) -> bool:
        """gRPC asks all callers for a certificate, or none; those with keys need none."""
        return self.book is None


def _authenticator(tls: TlsIdentity | None, book: TenantBook | None) -> Authenticator:
    if book is not None:
        return KeyAuthenticator(book)
    return NoAuthenticator() if tls is None else CertificateAuthenticator()
