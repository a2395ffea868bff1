"""Announced streams over NIXL: the sink reads the source's blocks where they lie.

It reads into memory of the stream's own, and copies from there: what NIXL may write after its time limit is then never
a block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import torch

from common.errors import TransferError, UnavailableError
from common.transport.announced_arrivals import SinkLane
from common.transport.arriving_blocks import ArrivingStream, PlacedPart
from common.transport.nixl_agent import NixlAgent, device_id, memory_type
from common.transport.source_blocks import Piece, SourceBlocks
from common.transport.tensor_blocks import TensorBlocks, write_tensor
from protos import transfer_pb2 as pb

TRANSPORT = "nixl"
BATCH_BYTES = 4 * 2**20
NUM_SLOTS = 8
MAX_IDLE_BUFFERS = 8


class NixlLane:
    """A SourceLane. Nothing is copied here: blocks are leased until the transfer has ended."""

    transport = TRANSPORT
    batch_bytes = BATCH_BYTES
    num_slots = NUM_SLOTS
    is_plain_copy = False
    turn: asyncio.Lock | None = None

    def __init__(self, agent: NixlAgent, blocks: TensorBlocks) -> None:
        self._agent = agent
        self._blocks = blocks

    async def open(self) -> pb.AnnounceOpen:
        return pb.AnnounceOpen(nixl=pb.NixlLane(agent_metadata=self._agent.metadata, agent_name=self._agent.name))

    def opened(self) -> None:
        pass

    def renew(self) -> bool:
        return False

    def load(self, slot: int, pieces: Sequence[Piece], blocks: SourceBlocks) -> pb.Batch:
        blocks.read(pieces)  # for the checksums
        tensors = [self._blocks.block_tensor(piece.ref.group_id, piece.block_id) for piece in pieces]
        if len({tensor.device for tensor in tensors}) > 1:
            raise UnavailableError("nixl: some blocks are swapped out, others are not")
        return pb.Batch(
            group_id=pieces[0].ref.group_id,
            extents=[piece.encode() for piece in pieces],
            slot=slot,
            addresses=[tensor.data_ptr() + piece.offset for tensor, piece in zip(tensors, pieces, strict=True)],
            device_id=device_id(tensors[0]),
            device_memory=memory_type(tensors[0]) == "VRAM",
        )

    def close(self, *, clean: bool) -> None:
        pass


class NixlSink:
    """Owned by the event loop."""

    def __init__(self, agent: NixlAgent, blocks: TensorBlocks) -> None:
        self.agent = agent
        self.blocks = blocks
        self._idle: list[torch.Tensor] = []
        self.lost: list[torch.Tensor] = []  # NIXL may still write to these

    async def open(self, message: pb.AnnounceOpen) -> SinkLane:
        """A LaneOpener."""
        remote = await asyncio.to_thread(self.agent.know, message.nixl.agent_name, message.nixl.agent_metadata)
        buffer = self._idle.pop() if self._idle else await asyncio.to_thread(self._make_buffer)
        return NixlTaker(self, remote, buffer)

    def keep(self, buffer: torch.Tensor) -> None:
        if len(self._idle) < MAX_IDLE_BUFFERS:
            self._idle.append(buffer)

    def _make_buffer(self) -> torch.Tensor:
        buffer = torch.empty(BATCH_BYTES, dtype=torch.uint8, device=self.blocks.device)
        self.agent.register(buffer)
        return buffer


class NixlTaker:
    """A SinkLane. A buffer of a stream that failed is not used again, nor freed: NIXL keeps it registered."""

    is_plain_copy = False

    def __init__(self, sink: NixlSink, remote: str, buffer: torch.Tensor) -> None:
        self._sink = sink
        self._remote = remote
        self._buffer: torch.Tensor | None = buffer

    def take(self, batch: pb.Batch, stream: ArrivingStream, parts: list[PlacedPart]) -> None:
        assert self._buffer is not None
        num_bytes = sum(part.length for part in parts)
        if len(batch.addresses) != len(parts) or num_bytes > BATCH_BYTES:
            raise TransferError("nixl: a batch does not say where its bytes lie, or is too large")
        received = self._buffer[:num_bytes]
        addresses = [
            (address, part.length, batch.device_id) for address, part in zip(batch.addresses, parts, strict=True)
        ]
        self._sink.agent.read(self._remote, addresses, "VRAM" if batch.device_memory else "DRAM", received)
        write_tensor(stream, parts, received, self._sink.blocks)

    def close(self, *, clean: bool) -> None:
        if self._buffer is not None and clean:
            self._sink.keep(self._buffer)
        elif self._buffer is not None:
            self._sink.lost.append(self._buffer)
        self._buffer = None
