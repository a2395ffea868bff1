"""KV blocks over gRPC client streams of raw-bytes frames."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import grpc

from common.errors import SlipstreamError, TransferError, UnavailableError
from common.net.status import error_from_call
from common.transport.channels import PeerChannels
from common.transport.frame import encode_frame
from common.transport.push_target import PushTarget
from common.transport.source_blocks import Block, Piece, SourceBlocks
from protos import transfer_pb2 as pb

PUSH_METHOD = "/slipstream.v1.KvTransfer/Push"
TRANSPORT = "grpc"
# Around 1 MiB a message gRPC is fastest; larger ones only hold memory.
FRAME_BYTES = 2**20
# While one stream's frame is written to the socket, the other's is copied: one alone leaves both ends waiting in turn.
NUM_STREAMS = 2
# Frames that one hop to a thread encodes: a hop costs as much as half a frame's copy.
FRAMES_PER_HOP = 2
ABANDON_TIMEOUT_S = 5.0

_Call = grpc.aio.StreamUnaryCall


class GrpcStream:
    """A BlockStream of up to NUM_STREAMS calls. Copying and checksums run in threads."""

    transport = TRANSPORT

    def __init__(self, target: PushTarget, blocks: SourceBlocks, channels: PeerChannels) -> None:
        self._target = target
        self._blocks = blocks
        self._open_call: grpc.aio.StreamUnaryMultiCallable[bytes, pb.PushResponse] = channels.get(
            target.address
        ).stream_unary(PUSH_METHOD, request_serializer=None, response_deserializer=pb.PushResponse.FromString)
        self._calls: list[_Call[bytes, pb.PushResponse]] = []
        self._num_sent_bytes = 0

    async def send(self, blocks: Sequence[Block]) -> None:
        runs = self._runs(blocks)
        first = next(runs, None)
        if first is None:
            return
        second = next(runs, None)
        # One run is not worth a second stream.
        num_writers = 1 if second is None else NUM_STREAMS
        while len(self._calls) < num_writers:
            self._calls.append(self._open_call())
        remaining = _chain(first, second, runs)
        try:
            async with asyncio.TaskGroup() as group:
                for call in self._calls[:num_writers]:
                    group.create_task(self._write(call, remaining))
        except* SlipstreamError as errors:
            raise errors.exceptions[0] from None

    async def finish(self) -> None:
        num_received_bytes = 0
        try:
            for call in self._calls:
                await call.done_writing()
            for call in self._calls:
                num_received_bytes += (await call).received_bytes
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error
        if num_received_bytes != self._num_sent_bytes:
            raise TransferError(f"the sink took {num_received_bytes} of {self._num_sent_bytes} bytes")

    async def abandon(self) -> bool:
        for call in self._calls:
            call.cancel()
        return False  # the sink hears of it in its own time

    def _runs(self, blocks: Sequence[Block]) -> Iterator[list[list[Piece]]]:
        """Frames that are encoded together. The parts of one block stay in one run, so that they arrive in order."""
        run: list[list[Piece]] = []
        for frame in self._blocks.batches(blocks, FRAME_BYTES):
            if len(run) >= FRAMES_PER_HOP and frame[0].offset == 0:
                yield run
                run = []
            run.append(frame)
        if run:
            yield run

    async def _write(self, call: _Call[bytes, pb.PushResponse], runs: Iterator[list[list[Piece]]]) -> None:
        for run in runs:
            for frame in await asyncio.to_thread(self._encode, run):
                await self._write_frame(call, frame)
            self._num_sent_bytes += sum(piece.length for frame in run for piece in frame)

    def _encode(self, run: list[list[Piece]]) -> list[bytes]:
        return [self._encode_frame(pieces) for pieces in run]

    def _encode_frame(self, pieces: list[Piece]) -> bytes:
        header = pb.PushHeader(
            ticket_id=self._target.ticket_id,
            generation=self._target.generation,
            rank=0,
            group_id=pieces[0].ref.group_id,
            extents=[piece.encode() for piece in pieces],
        )
        return encode_frame(header, self._blocks.read(pieces))

    async def _write_frame(self, call: _Call[bytes, pb.PushResponse], frame: bytes) -> None:
        try:
            await call.write(frame)
        except asyncio.InvalidStateError:
            raise await _stream_error(call) from None
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error


async def _stream_error(call: _Call[bytes, pb.PushResponse]) -> SlipstreamError:
    """Why the sink ended the stream early."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error_from_call(error)
    return UnavailableError("the sink ended the stream early")


def _chain(
    first: list[list[Piece]], second: list[list[Piece]] | None, rest: Iterator[list[list[Piece]]]
) -> Iterator[list[list[Piece]]]:
    yield first
    if second is not None:
        yield second
    yield from rest
