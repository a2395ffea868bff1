"""The proxy's links, over real connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from benchmarks.chaos.proxy import Proxy
from benchmarks.chaos.socket_owner import find_owner

SOON_S = 0.2


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
async def proxy(echo_port: int) -> AsyncIterator[Proxy]:
    def name_peer(port: int) -> str | None:
        return "me" if find_owner(port, [os.getpid()]) == os.getpid() else None

    proxy = Proxy("echo", echo_port, name_peer, http2=False)
    await proxy.start()
    yield proxy
    await proxy.close()


async def connect(proxy: Proxy) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = proxy.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def read(reader: asyncio.StreamReader) -> bytes | None:
    """What comes soon; None: nothing; empty: the end."""
    try:
        return await asyncio.wait_for(reader.read(1000), SOON_S)
    except TimeoutError:
        return None


async def test_bytes_pass_under_the_name_of_their_process(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"hello")
    assert await read(reader) == b"hello"
    assert len(proxy.link("me").connections) == 1
    writer.close()


async def test_nobody_learns_of_a_cut_and_everything_comes_after_it(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"one")
    assert await read(reader) == b"one"
    proxy.link("me").cut()
    writer.write(b"two")
    assert await read(reader) is None
    proxy.link("me").open()
    assert await read(reader) == b"two"
    writer.close()


async def test_a_connection_that_is_made_in_a_cut_waits(proxy: Proxy) -> None:
    proxy.link("me").cut()
    reader, writer = await connect(proxy)
    writer.write(b"early")
    assert await read(reader) is None
    proxy.link("me").open()
    assert await read(reader) == b"early"
    writer.close()


async def test_what_is_held_is_lost_when_the_link_is_dropped(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"one")
    assert await read(reader) == b"one"
    proxy.link("me").requests.let_bytes(0)
    writer.write(b"two")
    await asyncio.sleep(SOON_S)
    proxy.link("me").drop()
    assert await read(reader) == b""
    writer.close()


async def test_the_last_words_of_one_that_closes_arrive(proxy: Proxy) -> None:
    reader, writer = await connect(proxy)
    writer.write(b"bye")
    assert await read(reader) == b"bye"
    writer.write_eof()
    assert await read(reader) == b""
    writer.close()
