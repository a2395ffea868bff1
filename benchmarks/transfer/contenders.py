"""What is compared: the plain socket and the transports, each a way to move the whole pool once."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.pools import BLOCK_BYTES, SPEC
from common.config import TransferConfig
from common.kv.first_token import FirstToken
from common.kv.ticket import BlockRef
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_source
from common.transport.push_target import PushTarget
from common.transport.transfer_counters import TransferCounters
from common.worker.pool_blocks import PoolBlocks

FIRST_TOKENS = (FirstToken(choice_index=0, token_id=1, finished=False),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A transport with its settings. `discard`: the sink drops the bytes; it verifies unless `checksum` is none."""

    name: str
    transport: str
    checksum: str = "xxh3_64"
    discard: bool = False
    settings: tuple[tuple[str, Any], ...] = ()

    def sink_settings(self) -> dict[str, Any]:
        return {**self._settings(), "discard": self.discard}

    def config(self) -> TransferConfig:
        return TransferConfig(**self._settings())

    def _settings(self) -> dict[str, Any]:
        names = (self.transport,) if self.transport == "grpc" else (self.transport, "grpc")
        return {"kv_transports": names, "kv_checksum": self.checksum, **dict(self.settings)}


class Contender(Protocol):
    """`move` returns when the other process has everything."""

    name: str

    async def move(self) -> None: ...


class PlainSocket:
    """sendall of one block after the other, recv_into one buffer of 1 MiB: no checksum, no place for the bytes."""

    name = "plain socket"

    def __init__(self, blocks: PoolBlocks, num_blocks: int, port: int) -> None:
        self._blocks = blocks
        self._num_blocks = num_blocks
        self._port = port

    async def move(self) -> None:
        await asyncio.to_thread(self._move)

    def _move(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall((self._num_blocks * BLOCK_BYTES).to_bytes(8, "little"))
            for block_id in range(self._num_blocks):
                connection.sendall(self._blocks.block_bytes(0, block_id))
            assert connection.recv(1) == b"\1"


class Transport:
    """A whole transfer: push of the pool, commit."""

    def __init__(self, way: Way, blocks: PoolBlocks, num_blocks: int, child: SinkChild) -> None:
        self.name = way.name
        self._way = way
        self._num_blocks = num_blocks
        self._child = child
        self._channels = PeerChannels()
        self.counters = TransferCounters()
        self._senders = make_source(way.config(), blocks, self._channels, self.counters)

    async def move(self) -> None:
        answer = await self._child.ask("target", sink=self.name)
        target = PushTarget.from_wire(self._child.decode_target(answer["target"]))
        sender = self._senders.open(target)
        await sender.push([(BlockRef(0, index), index) for index in range(self._num_blocks)])
        num_tokens = self._num_blocks * SPEC.block_size
        await sender.commit(num_computed_tokens=num_tokens, first_tokens=FIRST_TOKENS, attempt=1)
        if sender.transport != self._way.transport:
            raise RuntimeError(f"{self.name}: {sender.transport} carried the blocks")

    async def close(self) -> None:
        await self._senders.close()
        await self._channels.close()
