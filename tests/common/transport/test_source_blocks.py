"""Blocks on their way out: what is read and what is copied are the same bytes, with the same checksums."""

from __future__ import annotations

import numpy as np
import pytest

from common.kv.ticket import BlockRef
from common.transport.checksum import Checksum
from common.transport.source_blocks import PORTION_BYTES, SourceBlocks


class Slabs:
    """A BlockReader over random bytes, a block of two portions and a bit."""

    in_host_memory = True
    size = 2 * PORTION_BYTES + 100

    def __init__(self) -> None:
        self.array = np.random.default_rng(0).integers(0, 256, (4, self.size), np.uint8)

    def block_size_bytes(self, group_id: int) -> int:
        return self.size

    def block_bytes(self, group_id: int, block_id: int) -> memoryview:
        return self.array[block_id].data


BLOCKS = [(BlockRef(0, 5), 2), (BlockRef(0, 6), 0), (BlockRef(0, 7), 3)]


@pytest.mark.parametrize("checksum", Checksum)
@pytest.mark.parametrize("max_bytes", [PORTION_BYTES, 2 * Slabs.size], ids=["cut blocks", "several a batch"])
def test_copies_are_what_is_read(checksum: Checksum, max_bytes: int) -> None:
    slabs = Slabs()
    reading, copying = SourceBlocks(slabs, checksum), SourceBlocks(slabs, checksum)
    room = np.zeros(2 * Slabs.size, np.uint8)
    sent = b""
    for pieces in reading.batches(BLOCKS, max_bytes):
        read = b"".join(reading.read(pieces))
        copying.copy(pieces, room)
        assert room[: len(read)].tobytes() == read
        sent += read
    assert sent == b"".join(slabs.array[block_id].tobytes() for _, block_id in BLOCKS)
    assert copying.checksums == reading.checksums
    assert reading.checksums == {ref: checksum.of(slabs.array[block_id].data) for ref, block_id in BLOCKS}


def test_a_block_that_is_sent_again_keeps_its_first_checksum() -> None:
    slabs = Slabs()
    blocks = SourceBlocks(slabs, Checksum.XXH3_64)
    room = np.zeros(Slabs.size, np.uint8)
    pieces = next(blocks.batches(BLOCKS[:1], Slabs.size))
    blocks.copy(pieces, room)
    before = dict(blocks.checksums)
    slabs.array[2, 0] ^= 1
    blocks.copy(pieces, room)
    assert blocks.checksums == before
