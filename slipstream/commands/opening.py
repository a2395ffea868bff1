"""The client of a command."""

from __future__ import annotations

from common.errors import ConfigError
from slipstream.client import Client
from slipstream.settings import ClientConfig


def open_client(config: ClientConfig) -> Client:
    """Raises ConfigError."""
    try:
        return Client(
            config.target,
            timeout_s=config.timeout_s,
            tls_dir=config.tls_dir,
            api_key=config.api_key,
        )
    except ValueError as error:
        raise ConfigError("api_key", str(error).removeprefix("api_key: ")) from None
