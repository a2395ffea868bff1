"""The fleet's certificates, in the URL of an index server that speaks TLS."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode, urlsplit

from common.config import IndexConfig


class CertificateFiles(Protocol):
    """Where a process has its certificate."""

    @property
    def ca_path(self) -> Path: ...

    @property
    def certificate_path(self) -> Path: ...

    @property
    def key_path(self) -> Path: ...


def with_certificates(config: IndexConfig, files: CertificateFiles | None) -> IndexConfig:
    """The config with a `rediss` URL that names the files, unless it names some of its own (`ssl_…`)."""
    url = config.index_url
    if files is None or url is None or not url.startswith("rediss") or "ssl_" in urlsplit(url).query:
        return config
    parts = urlsplit(url)
    named = urlencode(
        {"ssl_ca_certs": files.ca_path, "ssl_certfile": files.certificate_path, "ssl_keyfile": files.key_path}
    )
    query = f"{parts.query}&{named}" if parts.query else named
    return dataclasses.replace(config, index_url=parts._replace(query=query).geturl())
