"""The source's end of announced streams: bytes are laid ready, the sink is told over gRPC, and takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

import grpc

from common.errors import SlipstreamError, TransferError, UnavailableError
from common.net.status import error_from_call, error_from_status
from common.transport.channels import PeerChannels
from common.transport.push_target import PushTarget
from common.transport.source_blocks import Block, Piece, SourceBlocks
from common.transport.uninterrupted import uninterrupted
from protos import transfer_pb2 as pb

ANNOUNCE_METHOD = "/slipstream.v1.KvTransfer/Announce"
# The sink opens a lane in milliseconds, and takes a batch in less: this long means that it hangs.
OPEN_TIMEOUT_S = 5.0
TAKE_TIMEOUT_S = 10.0
ABANDON_TIMEOUT_S = 5.0


class SourceLane(Protocol):
    """The source's end of what carries one stream's bytes."""

    @property
    def transport(self) -> str: ...

    @property
    def batch_bytes(self) -> int: ...

    @property
    def num_slots(self) -> int:
        """Batches that may lie ready at the same time."""
        ...

    @property
    def is_plain_copy(self) -> bool:
        """Whether `load` copies host memory, for less than a millisecond, and does nothing else."""
        ...

    @property
    def turn(self) -> asyncio.Lock | None:
        """Held from the first batch to the last of a `send`, where streams share what carries them."""
        ...

    async def open(self) -> pb.AnnounceOpen:
        """How the sink finds its end; the lane's field is set. Raises SlipstreamError when it can't be had."""
        ...

    def opened(self) -> None:
        """The sink has its end."""
        ...

    def renew(self) -> bool:
        """The sink could not open its end: whether `open` may bring another lane that it can."""
        ...

    def load(self, slot: int, pieces: Sequence[Piece], blocks: SourceBlocks) -> pb.Batch:
        """Lays a batch ready, in a thread unless it is a plain copy; what lay in the slot before has been taken."""
        ...

    def close(self, *, clean: bool) -> None:
        """`clean`: the sink has taken all. Idempotent."""
        ...


class AnnouncedStream:
    """A BlockStream. One batch is laid ready while the sink takes those before it."""

    def __init__(self, target: PushTarget, blocks: SourceBlocks, channels: PeerChannels, lane: SourceLane) -> None:
        self._target = target
        self._blocks = blocks
        self._channels = channels
        self._lane = lane
        self._call: grpc.aio.StreamStreamCall[pb.AnnounceRequest, pb.AnnounceResponse] | None = None
        self._cut = False  # ended from here, without the sink's word that it has closed its end
        self._num_announced = 0
        self._num_taken = 0
        self._finished = False
        self.num_sent_bytes = 0

    @property
    def transport(self) -> str:
        return self._lane.transport

    async def send(self, blocks: Sequence[Block]) -> None:
        if self._call is None:
            await self._open()
        turn = self._lane.turn
        if turn is None:
            await self._announce(blocks)
            return
        async with turn:
            try:
                await self._announce(blocks)
                await self._hear_all()
            except BaseException:
                self._lane.close(clean=False)  # before it is another's turn
                raise

    async def _announce(self, blocks: Sequence[Block]) -> None:
        for pieces in self._blocks.batches(blocks, self._lane.batch_bytes):
            while self._num_announced - self._num_taken >= self._lane.num_slots:
                await self._hear()
            slot = self._num_announced % self._lane.num_slots
            if self._lane.is_plain_copy and self._blocks.in_host_memory:
                batch = self._lane.load(slot, pieces, self._blocks)
            else:
                batch = await uninterrupted(self._lane.load, slot, pieces, self._blocks)
            self._num_announced += 1
            await self._say(pb.AnnounceRequest(batch=batch))
            self.num_sent_bytes += sum(piece.length for piece in pieces)

    async def finish(self) -> None:
        if self._call is None or self._finished:
            return
        await self._call.done_writing()
        await self._hear_all()
        code = await self._call.code()
        if code is not grpc.StatusCode.OK:
            raise await self._error()
        self._finished = True
        self._lane.close(clean=True)

    async def abandon(self) -> bool:
        if self._call is not None and not self._cut:
            try:
                async with asyncio.timeout(ABANDON_TIMEOUT_S):
                    await self._call.done_writing()
                    await self._call.code()
            except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError):
                self._cut = True
                self._call.cancel()
        self._lane.close(clean=False)
        return not self._cut

    def close(self) -> None:
        if self._call is not None and not self._finished:
            self._cut = True
            self._call.cancel()
        self._lane.close(clean=False)

    async def _open(self) -> None:
        try:
            await self._open_lane()
        except UnavailableError:
            if self._cut or not self._lane.renew():
                raise
            await self._open_lane()

    async def _open_lane(self) -> None:
        opening = await self._lane.open()
        opening.ticket_id = self._target.ticket_id
        opening.generation = self._target.generation
        method: grpc.aio.StreamStreamMultiCallable[pb.AnnounceRequest, pb.AnnounceResponse] = self._channels.get(
            self._target.address
        ).stream_stream(
            ANNOUNCE_METHOD,
            request_serializer=pb.AnnounceRequest.SerializeToString,
            response_deserializer=pb.AnnounceResponse.FromString,
        )
        self._call = method()
        await self._say(pb.AnnounceRequest(open=opening))
        await self._hear(OPEN_TIMEOUT_S)
        self._lane.opened()

    async def _say(self, message: pb.AnnounceRequest) -> None:
        assert self._call is not None
        try:
            await self._call.write(message)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            # A write that meets the stream's end says nothing of its reason.
            raise await self._error() from None

    async def _hear(self, timeout_s: float = TAKE_TIMEOUT_S) -> None:
        """Waits for the sink's next word."""
        assert self._call is not None
        try:
            async with asyncio.timeout(timeout_s):
                response: Any = await self._call.read()
        except TimeoutError:
            self._cut = True  # gRPC cancels a call whose read is cancelled
            raise UnavailableError(f"{self.transport}: the sink took nothing for {timeout_s:g} s") from None
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error
        if response is grpc.aio.EOF:
            raise await self._error()
        if not self._num_taken <= response.num_taken <= self._num_announced:
            raise TransferError(f"the sink took {response.num_taken} of {self._num_announced} batches")
        self._num_taken = response.num_taken

    async def _hear_all(self) -> None:
        while self._num_taken < self._num_announced:
            await self._hear()

    async def _error(self) -> SlipstreamError:
        """Why the sink ended the stream."""
        assert self._call is not None
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return UnavailableError("the sink ended the stream early")
        return error_from_status(code.name, await self._call.details() or "")
