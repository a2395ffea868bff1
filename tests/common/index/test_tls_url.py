"""An index server that speaks TLS and asks for certificates, with those of the fleet."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from common.config import IndexConfig
from common.index.client import IndexClient, IndexUnavailableError
from common.index.server import EmbeddedIndexServer
from common.index.tls_url import with_certificates
from common.net.peer_role import PeerRole
from common.net.tls_folder import load_identity
from tests.support.certificates import make_fleet


@asynccontextmanager
async def tls_in_front_of(server: EmbeddedIndexServer, fleet: Path) -> AsyncIterator[str]:
    """The URL of an index server that speaks TLS, and asks for certificates, as Valkey does when it is built so."""
    folder = fleet / PeerRole.INDEX
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", urlsplit(server.url).port)
        copies = [asyncio.create_task(copy(reader, inner_writer)), asyncio.create_task(copy(inner_reader, writer))]
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        inner_writer.close()
        writer.close()

    front = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://127.0.0.1:{front.sockets[0].getsockname()[1]}"
    finally:
        front.close()


async def test_the_fleet_s_certificates_open_it(index_server: EmbeddedIndexServer, tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path)
    identity = load_identity(str(fleet), PeerRole.WORKER)
    async with tls_in_front_of(index_server, fleet) as url:
        config = with_certificates(IndexConfig(index_url=url), identity)
        client = IndexClient.from_url(config.index_url or "")
        await client.ping()
        await client.close()
        without = IndexClient.from_url(f"{url}?ssl_ca_certs={identity.ca_path}")
        with pytest.raises(IndexUnavailableError):
            await without.ping()
        await without.close()


def test_other_urls_stay_as_they_are(tmp_path: Path) -> None:
    identity = load_identity(str(make_fleet(tmp_path)), PeerRole.WORKER)
    for url in ("redis://127.0.0.1:6379", "unix:///tmp/valkey.sock", "rediss://h:1?ssl_ca_certs=/own.crt", None):
        config = IndexConfig(index_url=url)
        assert with_certificates(config, identity) is config
    assert with_certificates(IndexConfig(index_url="rediss://h:1"), None).index_url == "rediss://h:1"


def test_a_query_is_kept(tmp_path: Path) -> None:
    identity = load_identity(str(make_fleet(tmp_path)), PeerRole.WORKER)
    config = with_certificates(IndexConfig(index_url="rediss+cluster://h:1?shards=3"), identity)
    assert (config.index_url or "").startswith("rediss+cluster://h:1?shards=3&ssl_ca_certs=")
