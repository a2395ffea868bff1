"""What lies between the two ends of transfers in a test: streams, frames, messages, and the clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from common.kv.source_ticket import End, SourceBlock, SourceTicket
from common.kv.ticket import BlockRef

LEASE_S = 10.0

Content = tuple[int, int]  # the transfer and the logical block whose KV it is


@dataclass(eq=False)
class Stream:
    """One push. `unread` are blocks that the source has not read yet, `frames` those on their way."""

    transfer: Transfer
    unread: deque[SourceBlock]
    frames: deque[tuple[BlockRef, Content]] = field(default_factory=deque)
    sink_stream: int | None = None
    sink_life: int = 0
    stopped: bool = False  # at the source: nothing more is read
    closed: bool = False  # at the sink: nothing more is written

    @property
    def is_reading(self) -> bool:
        return bool(self.unread) and not self.stopped

    @property
    def is_done(self) -> bool:
        """All was sent and written, and neither end knows it yet."""
        return not self.unread and not self.frames and not self.stopped

    def stop_reading(self) -> None:
        self.stopped = True
        self.unread.clear()


@dataclass(eq=False)
class Transfer:
    """`source` is None once its process has died."""

    number: int
    ticket_id: str
    num_blocks: int
    num_present: int
    source: SourceTicket | None
    num_computed: int = 0
    stream: Stream | None = None
    ended: End | None = None
    generation: int = 0
    sent: dict[BlockRef, Content] = field(default_factory=dict)


class TransferNetwork:
    """Carries what whoever drives the test takes out of it. A message is delivered by calling it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.transfers: list[Transfer] = []
        self.streams: list[Stream] = []
        self.messages: list[Callable[[], None]] = []
