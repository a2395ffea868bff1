"""A TCP proxy before one process: what the others say to it, and hear from it, passes through valves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from benchmarks.chaos.http2_frames import Http2Frames, Piece
from benchmarks.chaos.valve import Valve

READ_BYTES = 64 * 1024


@dataclass(slots=True)
class Link:
    """From one process to another, whichever connections and lives of the two carry it."""

    source: str
    target: str
    requests: Valve = field(default_factory=Valve)
    responses: Valve = field(default_factory=Valve)
    connections: set[asyncio.Task[None]] = field(default_factory=set)

    def open(self) -> None:
        self.requests.open()
        self.responses.open()

    def cut(self) -> None:
        self.requests.cut()
        self.responses.cut()

    def drop(self) -> None:
        """Breaks the connections; what waited in a valve never arrives."""
        for connection in self.connections:
            connection.cancel()


class Proxy:
    """Listens on `address` for `target`. Owned by the event loop.

    `name_peer` tells which process a connection comes from, by its port on this machine; None: none of the fleet's.
    `http2` False: bytes of another protocol, in which there are no frames.
    """

    def __init__(
        self, target: str, target_port: int, name_peer: Callable[[int], str | None], *, http2: bool = True
    ) -> None:
        self._target = target
        self._target_port = target_port
        self._name_peer = name_peer
        self._http2 = http2
        self._links: dict[str, Link] = {}
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def link(self, source: str) -> Link:
        """The link from a process, by its name."""
        if source not in self._links:
            self._links[source] = Link(source, self._target)
        return self._links[source]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        tasks = [task for link in self._links.values() for task in link.connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._name_peer(writer.get_extra_info("peername")[1])
        link = self.link(source or "outside")
        task = asyncio.current_task()
        assert task is not None
        link.connections.add(task)
        try:
            await self._connect(link, reader, writer)
            writer.close()  # after what was written last
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            link.connections.discard(task)

    async def _connect(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await link.requests.wait_not_cut()
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        pumps = [
            asyncio.create_task(_pump(reader, far_writer, link.requests, self._split(has_preface=True))),
            asyncio.create_task(_pump(far_reader, writer, link.responses, self._split(has_preface=False))),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            # Of a peer that is cut off nobody hears that it has gone.
            await link.requests.wait_not_cut()
            await link.responses.wait_not_cut()
            far_writer.close()
        except asyncio.CancelledError:
            far_writer.transport.abort()
            raise
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    def _split(self, *, has_preface: bool) -> Callable[[bytes], Iterable[Piece]]:
        if self._http2:
            return Http2Frames(has_preface=has_preface).split
        return lambda data: (Piece(data),)


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    valve: Valve,
    split: Callable[[bytes], Iterable[Piece]],
) -> None:
    """Until either end is gone."""
    with contextlib.suppress(OSError):
        while data := await reader.read(READ_BYTES):
            for piece in split(data):
                left = piece.data
                while left:
                    passing = await valve.take(left, is_empty_answer=piece.is_empty_answer)
                    if writer.is_closing():
                        return
                    writer.write(passing)
                    left = left[len(passing) :]
            await writer.drain()
