"""The sending end of one transfer, whatever carries it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from common.kv.first_token import FirstToken
from common.kv.ticket import BlockRef


class BlockReader(Protocol):
    """Read access to the bytes of blocks that stay as they are while they are read."""

    @property
    def in_host_memory(self) -> bool:
        """Whether reading and writing are plain copies: elsewhere they wait for a device."""
        ...

    def block_size_bytes(self, group_id: int) -> int: ...

    def block_bytes(self, group_id: int, block_id: int) -> memoryview:
        """The block's slab, without a copy."""
        ...


class BlockWriter(BlockReader, Protocol):
    """Write access to blocks that only the transfer at hand may write."""

    def write_block(self, group_id: int, block_id: int, offset: int, data: memoryview) -> None:
        """Writes bytes into the slab from `offset` on."""
        ...


class KVSender(Protocol):
    """Pushes blocks, then commits. Raises SlipstreamError when the sink is gone or refuses.

    Giving up is `SinkControl.fail`, whatever carried the bytes.
    """

    @property
    def num_sent_bytes(self) -> int: ...

    @property
    def num_sent_blocks(self) -> int: ...

    async def push(self, blocks: Sequence[tuple[BlockRef, int]]) -> None:
        """Sends whole blocks: where each belongs in the sequence, and its block id here.

        However it ends, cancelled too, nothing reads the blocks any more when it has.
        """
        ...

    async def commit(self, *, num_computed_tokens: int, first_tokens: Sequence[FirstToken], attempt: int) -> None:
        """All blocks are pushed: returns when the sink has accepted them.

        May be called again when it raised UnavailableError or DeadlineExceededError: the sink answers alike.
        """
        ...

    def close(self) -> None:
        """Ends whatever stream is open, so that the sink need not wait for more. Idempotent, legal at any time."""
        ...
