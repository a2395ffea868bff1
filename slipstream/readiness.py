"""Asks a router over HTTP whether a real token has gone through the whole path."""

from __future__ import annotations

import http.client
import ssl
import urllib.parse

from common.address import callable_address
from common.net.tls import TlsIdentity

READINESS_TIMEOUT_S = 10.0


def router_readiness(http_url: str, tls: TlsIdentity | None = None) -> str | None:
    """None when the router at `http_url` is ready, else why not, for people. `tls` when it is https."""
    address = urllib.parse.urlsplit(http_url)
    connection = _connection(callable_address(address.netloc), tls)
    try:
        connection.request("GET", "/ready")
        response = connection.getresponse()
        body = response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {http_url}/ready: {error}"
    finally:
        connection.close()
    return None if response.status == http.HTTPStatus.OK else f"/ready answers {response.status}: {body}"


def _connection(address: str, tls: TlsIdentity | None) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(address, timeout=READINESS_TIMEOUT_S)
    context = ssl.create_default_context(cadata=tls.ca.decode())
    return http.client.HTTPSConnection(address, timeout=READINESS_TIMEOUT_S, context=context)
