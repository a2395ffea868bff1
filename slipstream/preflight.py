"""What can be refused before any process is started: ports that are taken, an index server that is away, a model.

Otherwise a person waits for a child to fail, and reads the reason in its log.
"""

from __future__ import annotations

from pathlib import Path

from common.errors import ConfigError, UnsupportedModelError
from common.index.reachability import check_index
from common.index.tls_url import with_certificates
from common.model.architecture import ArchitectureConfig
from common.net.peer_role import PeerRole
from slipstream.access_check import check_identity, check_tenants
from slipstream.cluster_config import ClusterConfig
from slipstream.ports import check_cluster_ports


def check_surroundings(config: ClusterConfig) -> None:
    """Takes 2 s at most. Raises ConfigError that names the setting and what to do."""
    check_cluster_ports(config)
    check_identity(config.process, PeerRole.WORKER)
    tls = check_identity(config.process, PeerRole.ROUTER)
    check_tenants(config.api_keys)
    if config.index.index_url is None:
        return
    try:
        check_index(with_certificates(config.index, tls).index_url or "")
    except ConfigError as error:
        message = str(error).removeprefix(f"{error.field}: ")
        raise ConfigError(
            error.field,
            f"{message}. Start a Redis (7.0 or newer) or Valkey server there, name another one with --index-url, "
            "or leave the setting out: a server is then started with the rest",
        ) from None


def check_model(folder: Path) -> None:
    """Whether its architecture is built. Raises ConfigError that says which are, or which feature is not."""
    try:
        ArchitectureConfig.load(folder)
    except UnsupportedModelError as error:
        raise ConfigError("model", str(error)) from None
