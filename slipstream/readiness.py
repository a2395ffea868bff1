"""Asks a router over HTTP whether a real token has gone through the whole path."""

from __future__ import annotations

import http.client
import urllib.parse

READINESS_TIMEOUT_S = 10.0


def router_readiness(http_url: str) -> str | None:
    """None when the router at `http_url` is ready, else why not, for people."""
    address = urllib.parse.urlsplit(http_url)
    assert address.hostname is not None
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=READINESS_TIMEOUT_S)
    try:
        connection.request("GET", "/ready")
        response = connection.getresponse()
        body = response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        return f"no answer from {http_url}/ready: {error}"
    finally:
        connection.close()
    return None if response.status == http.HTTPStatus.OK else f"/ready answers {response.status}: {body}"
