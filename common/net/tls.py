"""A process's certificate, its key and the CA that it trusts, as gRPC takes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsIdentity:
    """PEM texts, read from `folder` by `common.net.tls_folder`.

    A caller of routers that take API keys needs no certificate: then it has only the CA.
    """

    folder: Path
    ca: bytes
    certificate: bytes | None = None
    key: bytes | None = None

    @property
    def ca_path(self) -> Path:
        return self.folder / CA_FILE

    @property
    def certificate_path(self) -> Path:
        return self.folder / CERTIFICATE_FILE

    @property
    def key_path(self) -> Path:
        return self.folder / KEY_FILE

    def server_credentials(self, *, require_client_certificate: bool) -> grpc.ServerCredentials:
        assert self.certificate is not None and self.key is not None
        return grpc.ssl_server_credentials(
            [(self.key, self.certificate)],
            root_certificates=self.ca if require_client_certificate else None,
            require_client_auth=require_client_certificate,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
