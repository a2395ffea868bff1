"""What carries one ticket's blocks from one source rank; the control messages are the ticket sender's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from common.transport.source_blocks import Block


class BlockStream(Protocol):
    """Owned by one task. Raises SlipstreamError when the sink, or what carries the bytes, fails."""

    @property
    def transport(self) -> str:
        """Its name in endpoints and counters."""
        ...

    @property
    def num_sent_bytes(self) -> int:
        """Bytes under way so far; rises during `send`."""
        ...

    async def send(self, blocks: Sequence[Block]) -> None:
        """Returns when their bytes are under way. However it ends, cancelled too, nothing here reads them then."""
        ...

    async def finish(self) -> None:
        """Returns when the sink has all bytes and has closed its end. Idempotent."""
        ...

    async def abandon(self) -> bool:
        """Gives up. True once the sink has closed its end, so that another stream may send the same blocks."""
        ...

    def close(self) -> None:
        """Ends what is open, without waiting. Idempotent, legal at any time."""
        ...
