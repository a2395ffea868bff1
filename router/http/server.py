"""Serves an ASGI application inside a running event loop, without touching signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from types import TracebackType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from common.errors import ConfigError
from common.net.tls import TlsIdentity
from router.http.credentials import TlsProtocol

MAX_HEADER_BYTES = 64 * 1024
# Connections at the same time; more are answered 503. The router refuses requests far earlier.
MAX_CONNECTIONS = 8192


class HttpServer:
    """A serving HTTP server; `stop` it from the loop that started it."""

    def __init__(self, server: uvicorn.Server, serving: asyncio.Task[None], host: str, port: int) -> None:
        self._server = server
        self._serving = serving
        self.host = host
        self.port = port

    async def stop(self) -> None:
        """Accepts no more, lets running answers end for the grace time, then cuts them off. Idempotent."""
        self._server.should_exit = True
        await asyncio.wait({self._serving})

    async def __aenter__(self) -> HttpServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


async def serve_http(
    app: ASGIApp, host: str, port: int, *, tls: TlsIdentity | None = None, grace_s: int = 5
) -> HttpServer:
    """Returns once connections are accepted. Port 0 takes a free one.

    With `tls`, callers may show a certificate of its CA: the application knows whether they have to.

    Raises ConfigError (field `http_port`) when the address can't be bound.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # Clients pool connections; one that is closed under a new request would cost them an error.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=grace_s,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        limit_concurrency=MAX_CONNECTIONS,
        **({} if tls is None else _tls_options(tls)),
    )
    server = uvicorn.Server(config)
    # Not `serve`: that one replaces the process's signal handlers.
    serving = asyncio.create_task(server._serve(sockets=[listener]), name="http-server")
    while not server.started:
        if serving.done():
            serving.result()
            raise ConfigError("http_port", f"the HTTP server ended as it started on {host}:{port}")
        await asyncio.sleep(0.005)
    return HttpServer(server, serving, host, listener.getsockname()[1])


def _tls_options(tls: TlsIdentity) -> dict[str, Any]:
    return {
        "http": TlsProtocol,
        "ssl_certfile": tls.certificate_path,
        "ssl_keyfile": tls.key_path,
        "ssl_ca_certs": str(tls.ca_path),
        "ssl_cert_reqs": ssl.CERT_OPTIONAL,
    }


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as on_failure:
            listener = on_failure.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.setblocking(False)
            on_failure.pop_all()
            return listener
    except OSError as error:
        raise ConfigError("http_port", f"can't listen on {host}:{port}: {error.strerror or error}") from error
