"""Blocks of this worker's pool on their way out: read, hashed once, and cut to what a message carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from common.kv.sender import BlockReader
from common.kv.ticket import BlockRef
from common.transport.checksum import Checksum
from protos import transfer_pb2 as pb

# Where a block belongs in the sequence, and its id here.
Block: TypeAlias = tuple[BlockRef, int]


class Piece(NamedTuple):
    """A part of a block. `length` is bytes."""

    ref: BlockRef
    block_id: int
    offset: int
    length: int

    def encode(self) -> pb.Extent:
        return pb.Extent(logical_block=self.ref.logical_block, offset=self.offset, length=self.length)


class SourceBlocks:
    """The blocks of one ticket. One thread at a time reads a block; different blocks may be read at the same time."""

    def __init__(self, reader: BlockReader, checksum: Checksum) -> None:
        self.checksum = checksum
        self.checksums: dict[BlockRef, int] = {}
        self._reader = reader

    @property
    def in_host_memory(self) -> bool:
        return self._reader.in_host_memory

    def read(self, pieces: Sequence[Piece]) -> list[memoryview]:
        """Their bytes, without a copy on the CPU; computes checksums of blocks that are new."""
        views = []
        for piece in pieces:
            slab = self._reader.block_bytes(piece.ref.group_id, piece.block_id)
            if piece.ref not in self.checksums:
                self.checksums[piece.ref] = self.checksum.of(slab)
            views.append(slab[piece.offset : piece.offset + piece.length])
        return views

    def batches(self, blocks: Sequence[Block], max_bytes: int) -> Iterator[list[Piece]]:
        """Neighbours of one group that fill about `max_bytes`; larger blocks are cut."""
        batch: list[Piece] = []
        num_bytes = 0
        for ref, block_id in blocks:
            size = self._reader.block_size_bytes(ref.group_id)
            if batch and (num_bytes + size > max_bytes or batch[0].ref.group_id != ref.group_id):
                yield batch
                batch, num_bytes = [], 0
            if size > max_bytes:
                for offset in range(0, size, max_bytes):
                    yield [Piece(ref, block_id, offset, min(max_bytes, size - offset))]
                continue
            batch.append(Piece(ref, block_id, 0, size))
            num_bytes += size
        if batch:
            yield batch
