"""Whether certificates and tenants can be used, asked before anything is loaded or started for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from common.config import ProcessConfig
from common.net.peer_role import PeerRole

if TYPE_CHECKING:
    from common.net.tls import TlsIdentity


def check_identity(process: ProcessConfig, role: PeerRole) -> TlsIdentity | None:
    """The identity of a process of that role, where it needs one. Raises ConfigError that names the setting."""
    if process.tls_dir is None:
        return None
    from common.net.tls_folder import load_identity  # loads gRPC and `cryptography`

    return load_identity(process.tls_dir, role)


def check_tenants(api_keys: str | None) -> None:
    """Raises ConfigError that names the setting."""
    if api_keys is not None:
        from router.access.tenant import read_tenants

        read_tenants(Path(api_keys))
