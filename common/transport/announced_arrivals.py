"""The sink's end of announced streams: batches are told of over gRPC, their bytes lie elsewhere, and are taken there.

The sink takes: a source never writes into this worker's pool, so that nothing can be written once a stream has ended.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

import grpc

from common.errors import InvalidRequestError
from common.transport.arriving_blocks import ArrivingBlocks, ArrivingStream, PlacedPart
from protos import transfer_pb2 as pb

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class SinkLane(Protocol):
    """The sink's end of what carries one stream's bytes."""

    @property
    def is_plain_copy(self) -> bool:
        """Whether `take` copies from host memory, and does nothing else."""
        ...

    def take(self, batch: pb.Batch, stream: ArrivingStream, parts: list[PlacedPart]) -> None:
        """Brings a batch's bytes to their places, in a thread unless it is a plain copy. Raises SlipstreamError."""
        ...

    def close(self, *, clean: bool) -> None:
        """No `take` runs or will run. `clean`: whether all that was announced was taken. Idempotent."""
        ...


# Makes the lane that a source asks for. Raises SlipstreamError where it can't be had here.
LaneOpener = Callable[[pb.AnnounceOpen], Awaitable[SinkLane]]


class AnnouncedArrivals:
    """Owned by the event loop. `openers` by the name of AnnounceOpen's lane: the transports that this sink offers."""

    def __init__(self, blocks: ArrivingBlocks, openers: Mapping[str, LaneOpener]) -> None:
        self._blocks = blocks
        self._openers = openers

    async def serve(self, requests: AsyncIterator[pb.AnnounceRequest], context: Context) -> None:
        """One source rank's stream for one ticket."""
        first = await context.read()
        if first is grpc.aio.EOF or first.WhichOneof("kind") != "open":
            raise InvalidRequestError("open", "must be the stream's first message")
        transport = first.open.WhichOneof("lane") or "none"
        opener = self._openers.get(transport)
        if opener is None:
            raise InvalidRequestError("open.lane", f"this worker takes no blocks over {transport!r}")
        opened = first.open
        with self._blocks.stream(opened.ticket_id, opened.generation, opened.rank, transport) as stream:
            lane = await opener(opened)
            clean = False
            try:
                await context.write(pb.AnnounceResponse(num_taken=0))
                await self._take_all(context, stream, lane)
                clean = True
            finally:
                lane.close(clean=clean)

    async def _take_all(self, context: Context, stream: ArrivingStream, lane: SinkLane) -> None:
        num_taken = 0
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.WhichOneof("kind") != "batch":
                raise InvalidRequestError("kind", "a stream is opened once")
            batch = message.batch
            parts = stream.place(batch.group_id, batch.extents)
            await stream.take(parts, _taking(lane, batch, stream, parts), plain_copy=lane.is_plain_copy)
            num_taken += 1
            await context.write(pb.AnnounceResponse(num_taken=num_taken))


def _taking(lane: SinkLane, batch: pb.Batch, stream: ArrivingStream, parts: list[PlacedPart]) -> Callable[[], None]:
    return lambda: lane.take(batch, stream, parts)
