"""Whether a port can be listened on, asked before anything is loaded or started for it.

gRPC reports a taken port by a line of its C++ core and a bare failure; the operating system's own answer says more.
"""

from __future__ import annotations

import errno
import socket

from common.config import RouterConfig, WorkerConfig
from common.errors import ConfigError
from slipstream.cluster_config import ClusterConfig


def check_worker_port(config: WorkerConfig) -> None:
    """Raises ConfigError that names the setting."""
    _check_port("port", config.host, config.port)


def check_router_ports(config: RouterConfig) -> None:
    """Raises ConfigError that names the setting."""
    _check_port("grpc_port", config.host, config.grpc_port)
    _check_port("http_port", config.host, config.http_port)


def check_cluster_ports(config: ClusterConfig) -> None:
    """Raises ConfigError that names the setting."""
    for field, port in config.router_ports:
        _check_port(field, config.host, port)


def _check_port(field: str, host: str, port: int) -> None:
    flag = "--" + field.replace("_", "-")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the servers do: connections that have ended are in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"{port} is in use on {host}; choose another with {flag}, or 0 for any"
            raise ConfigError(field, message) from None
        if error.errno == errno.EACCES:
            message = f"{port} needs more rights than this user has; choose one from 1024 with {flag}, or 0 for any"
            raise ConfigError(field, message) from None
        raise ConfigError("host", f"can't listen on {host!r}: {error.strerror or error}") from None
