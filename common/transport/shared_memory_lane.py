"""Announced streams through shared memory: the source copies into a ring, the sink from the ring to its slots.

Not straight into the sink's pool: what a source may write there, it may write late, after the sink has given the block
to another request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from common.errors import TransferError, UnavailableError
from common.transport.announced_arrivals import SinkLane
from common.transport.arriving_blocks import ArrivingStream, PlacedPart
from common.transport.shared_memory import MadeRing, SharedRing
from common.transport.source_blocks import Piece, SourceBlocks
from protos import transfer_pb2 as pb

logger = logging.getLogger(__name__)

TRANSPORT = "shm"
# Rings that one end keeps for streams to come: making one takes milliseconds.
MAX_IDLE_RINGS = 8
# A sink that could not open a ring is asked again after this.
SHUN_S = 60.0


class SharedMemorySource:
    """Rings of this worker as a source. Owned by the event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._idle: OrderedDict[str, list[MadeRing]] = OrderedDict()  # by the sink's address
        self._shunned: dict[str, float] = {}  # by the sink's address: until when, on the monotonic clock

    def reaches(self, address: str) -> bool:
        """Whether a sink under the same kernel is worth a try: containers may still keep their memory apart."""
        return self._shunned.get(address, 0.0) <= time.monotonic()

    def shun(self, address: str) -> None:
        self._shunned[address] = time.monotonic() + SHUN_S

    def lane(self, address: str) -> SharedMemoryLane:
        return SharedMemoryLane(self, address)

    def idle_ring(self, address: str) -> MadeRing | None:
        idle = self._idle.get(address)
        return idle.pop() if idle else None

    async def make_ring(self) -> MadeRing:
        return await asyncio.to_thread(SharedRing.make, self._directory)

    def keep_ring(self, address: str, ring: MadeRing) -> None:
        self._idle.setdefault(address, []).append(ring)
        self._idle.move_to_end(address)
        while sum(map(len, self._idle.values())) > MAX_IDLE_RINGS:
            oldest = next(address for address, rings in self._idle.items() if rings)
            self._idle[oldest].pop(0)

    def forget(self, address: str) -> None:
        """The sink of that address does not know the rings that it had: it is another process by now."""
        self._idle.pop(address, None)


class SharedMemoryLane:
    """A SourceLane over one ring, which belongs to one stream at a time."""

    transport = TRANSPORT
    is_plain_copy = True

    def __init__(self, source: SharedMemorySource, address: str) -> None:
        self._source = source
        self._address = address
        self._made: MadeRing | None = None
        self._reused = False
        self._opened = False

    @property
    def batch_bytes(self) -> int:
        return self._ring.slot_bytes

    @property
    def num_slots(self) -> int:
        return self._ring.num_slots

    @property
    def turn(self) -> asyncio.Lock | None:
        return None

    async def open(self) -> pb.AnnounceOpen:
        self._made = self._source.idle_ring(self._address)
        self._reused = self._made is not None
        if self._made is None:
            self._made = await self._source.make_ring()
        ring = self._ring
        return pb.AnnounceOpen(
            shared_memory=pb.SharedMemoryLane(
                name=ring.name, nonce=ring.nonce, slot_bytes=ring.slot_bytes, num_slots=ring.num_slots
            )
        )

    def opened(self) -> None:
        assert self._made is not None
        self._made.unlink()
        self._opened = True

    def renew(self) -> bool:
        if not self._reused:
            return False
        self.close(clean=False)  # the sink no longer has the ring
        return True

    def load(self, slot: int, pieces: Sequence[Piece], blocks: SourceBlocks) -> pb.Batch:
        blocks.copy(pieces, self._ring.slots[slot])
        return pb.Batch(group_id=pieces[0].ref.group_id, extents=[piece.encode() for piece in pieces], slot=slot)

    def close(self, *, clean: bool) -> None:
        if self._made is None:
            return
        self._made.unlink()
        if clean:
            self._source.keep_ring(self._address, self._made)
        else:
            self._source.forget(self._address)
            if not self._opened and not self._reused:
                self._source.shun(self._address)
        self._made = None

    @property
    def _ring(self) -> SharedRing:
        assert self._made is not None
        return self._made.ring


class SharedMemorySink:
    """Rings of others that this worker, as a sink, has mapped. Owned by the event loop."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._idle: OrderedDict[str, SharedRing] = OrderedDict()  # by name

    async def open(self, message: pb.AnnounceOpen) -> SinkLane:
        """A LaneOpener."""
        asked = message.shared_memory
        ring = self._idle.pop(asked.name, None)
        if ring is None:
            ring = await asyncio.to_thread(
                SharedRing.open,
                self._directory,
                asked.name,
                asked.nonce,
                num_slots=asked.num_slots,
                slot_bytes=asked.slot_bytes,
            )
        elif (ring.nonce, ring.num_slots, ring.slot_bytes) != (asked.nonce, asked.num_slots, asked.slot_bytes):
            raise UnavailableError("shared memory: the ring of that name is another")
        return SharedMemoryTaker(self, ring)

    def keep(self, ring: SharedRing) -> None:
        self._idle[ring.name] = ring
        while len(self._idle) > MAX_IDLE_RINGS:
            self._idle.popitem(last=False)


class SharedMemoryTaker:
    """A SinkLane over one ring."""

    is_plain_copy = True

    def __init__(self, sink: SharedMemorySink, ring: SharedRing) -> None:
        self._sink = sink
        self._ring: SharedRing | None = ring

    def take(self, batch: pb.Batch, stream: ArrivingStream, parts: list[PlacedPart]) -> None:
        assert self._ring is not None
        num_bytes = sum(part.length for part in parts)
        if batch.slot >= self._ring.num_slots or num_bytes > self._ring.slot_bytes:
            raise TransferError("shared memory: a batch lies outside of its ring")
        stream.write(parts, self._ring.slots[batch.slot].data[:num_bytes])

    def close(self, *, clean: bool) -> None:
        if self._ring is not None and clean:
            self._sink.keep(self._ring)
        self._ring = None
