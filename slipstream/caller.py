"""How a client shows who it is: a certificate of the fleet, an API key, or neither."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from common.net.tls import TlsIdentity
from slipstream.connection import CHANNEL_OPTIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`metadata` goes with each call."""

    tls: TlsIdentity | None
    metadata: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, *, tls_dir: str | None, api_key: str | None) -> Caller:
        """Raises ConfigError, and ValueError for a key that no header can carry."""
        metadata = () if api_key is None else (("authorization", f"Bearer {_checked(api_key)}"),)
        if tls_dir is None:
            return cls(tls=None, metadata=metadata)
        from common.net.tls_folder import load_caller_identity  # loads `cryptography`

        return cls(tls=load_caller_identity(tls_dir), metadata=metadata)

    def open(self, address: str) -> grpc.Channel:
        """A channel to a router."""
        if self.tls is None:
            return grpc.insecure_channel(address, CHANNEL_OPTIONS)
        return grpc.secure_channel(address, self.tls.channel_credentials(), CHANNEL_OPTIONS)

    def open_async(self, address: str) -> grpc.aio.Channel:
        """A channel to a router, of the running event loop."""
        if self.tls is None:
            return grpc.aio.insecure_channel(address, CHANNEL_OPTIONS)
        return grpc.aio.secure_channel(address, self.tls.channel_credentials(), CHANNEL_OPTIONS)


def _checked(api_key: str) -> str:
    if not api_key.isascii() or not api_key.isprintable() or not api_key.strip():
        raise ValueError("api_key: must be printable ASCII")  # the key itself stays out of messages
    return api_key.strip()
