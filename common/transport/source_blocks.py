"""Blocks of this worker's pool on their way out: read, hashed once, and cut to what a message carries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from common.kv.sender import BlockReader
from common.kv.ticket import BlockRef
from common.transport.checksum import Checksum, RunningChecksum
from protos import transfer_pb2 as pb

# Where a block belongs in the sequence, and its id here.
Block: TypeAlias = tuple[BlockRef, int]

PORTION_BYTES = 512 * 2**10


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
            self._hash(piece.ref, slab)
            views.append(slab[piece.offset : piece.offset + piece.length])
        return views

    def copy(self, pieces: Sequence[Piece], destination: npt.NDArray[np.uint8]) -> None:
        """Copies their bytes, one after the other, into [num_bytes] uint8; computes checksums of blocks that are new.

        Without the interpreter lock.
        """
        start = 0
        for piece in pieces:
            slab = np.frombuffer(self._reader.block_bytes(piece.ref.group_id, piece.block_id), np.uint8)
            target = destination[start : start + piece.length]
            if piece.length == len(slab) and piece.ref not in self.checksums:
                self.checksums[piece.ref] = _copy_and_hash(slab, target, self.checksum)
            else:
                self._hash(piece.ref, slab.data)
                target[:] = slab[piece.offset : piece.offset + piece.length]
            start += piece.length

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

    def _hash(self, ref: BlockRef, slab: memoryview) -> None:
        if ref not in self.checksums:
            self.checksums[ref] = self.checksum.of(slab)


def _copy_and_hash(source: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8], checksum: Checksum) -> int:
    """The checksum. In portions that stay in a core's cache: to hash all and then copy all took a sixth longer."""
    running = RunningChecksum(checksum)
    for start in range(0, len(source), PORTION_BYTES):
        portion = source[start : start + PORTION_BYTES]
        running.update(portion.data)
        target[start : start + PORTION_BYTES] = portion
    return running.value
