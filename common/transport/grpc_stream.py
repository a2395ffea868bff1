"""KV blocks over a gRPC client stream of raw-bytes frames."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc

from common.errors import SlipstreamError, TransferError, UnavailableError
from common.net.status import error_from_call
from common.transport.channels import PeerChannels
from common.transport.frame import encode_frame
from common.transport.push_target import PushTarget
from common.transport.source_blocks import Block, Piece, SourceBlocks
from common.transport.uninterrupted import uninterrupted
from protos import transfer_pb2 as pb

PUSH_METHOD = "/slipstream.v1.KvTransfer/Push"
TRANSPORT = "grpc"
# Around 1 MiB a message gRPC is fastest; larger ones only hold memory.
FRAME_BYTES = 2**20


class GrpcStream:
    """A BlockStream.

    Frames of a pool in host memory are made on the event loop, in 0.2 ms each: a hop to a thread and back costs about
    as much.
    """

    transport = TRANSPORT

    def __init__(self, target: PushTarget, blocks: SourceBlocks, channels: PeerChannels) -> None:
        self._target = target
        self._blocks = blocks
        self._open_call: grpc.aio.StreamUnaryMultiCallable[bytes, pb.PushResponse] = channels.get(
            target.address
        ).stream_unary(PUSH_METHOD, request_serializer=None, response_deserializer=pb.PushResponse.FromString)
        self._call: grpc.aio.StreamUnaryCall[bytes, pb.PushResponse] | None = None
        self._finished = False
        self.num_sent_bytes = 0

    async def send(self, blocks: Sequence[Block]) -> None:
        if self._call is None:
            self._call = self._open_call()
        for pieces in self._blocks.batches(blocks, FRAME_BYTES):
            if self._blocks.in_host_memory:
                frame = self._encode_frame(pieces)
            else:
                frame = await uninterrupted(self._encode_frame, pieces)
            await self._write_frame(self._call, frame)
            del frame  # so that the next one has its memory, which is in the cache
            self.num_sent_bytes += sum(piece.length for piece in pieces)

    async def finish(self) -> None:
        if self._call is None or self._finished:
            return
        try:
            await self._call.done_writing()
            response = await self._call
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error
        if response.received_bytes != self.num_sent_bytes:
            raise TransferError(f"the sink took {response.received_bytes} of {self.num_sent_bytes} bytes")
        self._finished = True

    async def abandon(self) -> bool:
        self.close()
        return False  # the sink hears of it in its own time

    def close(self) -> None:
        if self._call is not None and not self._finished:
            self._call.cancel()

    def _encode_frame(self, pieces: list[Piece]) -> bytes:
        header = pb.PushHeader(
            ticket_id=self._target.ticket_id,
            generation=self._target.generation,
            rank=0,
            group_id=pieces[0].ref.group_id,
            extents=[piece.encode() for piece in pieces],
        )
        return encode_frame(header, self._blocks.read(pieces))

    async def _write_frame(self, call: grpc.aio.StreamUnaryCall[bytes, pb.PushResponse], frame: bytes) -> None:
        try:
            await call.write(frame)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            # A write that meets the stream's end says nothing of its reason.
            raise await _stream_error(call) from None


async def _stream_error(call: grpc.aio.StreamUnaryCall[bytes, pb.PushResponse]) -> SlipstreamError:
    """Why the sink ended the stream early."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error_from_call(error)
    return UnavailableError("the sink ended the stream early")
