"""KV blocks over a gRPC client stream of raw-bytes frames."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Sequence

import grpc

from common.errors import SlipstreamError, TransferError, UnavailableError
from common.kv.first_token import FirstToken
from common.kv.sender import BlockReader
from common.kv.ticket import BlockRef
from common.net.status import error_from_call
from common.transport.channels import PeerChannels
from common.transport.frame import encode_frame
from common.transport.push_target import PushTarget
from common.transport.uninterrupted import uninterrupted
from protos import transfer_pb2 as pb
from protos import transfer_pb2_grpc

PUSH_METHOD = "/slipstream.v1.KvTransfer/Push"
# Around 1 MiB a message gRPC is fastest; larger ones only hold memory.
FRAME_BYTES = 2**20
CONTROL_TIMEOUT_S = 10.0

Block = tuple[BlockRef, int]


class GrpcSender:
    """A KVSender. Owned by one task; copying and checksums run in a thread."""

    def __init__(self, target: PushTarget, reader: BlockReader, channels: PeerChannels) -> None:
        self._target = target
        self._reader = reader
        channel = channels.get(target.addresses[0])
        self._stub = transfer_pb2_grpc.KvTransferStub(channel)
        self._open_stream: grpc.aio.StreamUnaryMultiCallable[bytes, pb.PushResponse] = channel.stream_unary(
            PUSH_METHOD, request_serializer=None, response_deserializer=pb.PushResponse.FromString
        )
        self._stream: grpc.aio.StreamUnaryCall[bytes, pb.PushResponse] | None = None
        self._ended = False
        self._checksums: dict[BlockRef, int] = {}
        self.num_sent_bytes = 0

    @property
    def num_sent_blocks(self) -> int:
        return len(self._checksums)

    async def push(self, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        if self._stream is None:
            self._stream = self._open_stream()
        for frame_blocks in self._frames(blocks):
            for frame in await uninterrupted(self._encode, frame_blocks):
                await self._write(frame)

    async def commit(self, *, num_computed_tokens: int, first_tokens: Sequence[FirstToken], attempt: int) -> None:
        await self._end_stream()
        groups: dict[int, pb.GroupCommit] = {}
        for ref, checksum in self._checksums.items():
            group = groups.setdefault(ref.group_id, pb.GroupCommit(group_id=ref.group_id))
            group.logical_blocks.append(ref.logical_block)
            group.checksums.append(checksum)
        request = pb.CommitRequest(
            ticket_id=self._target.ticket_id,
            generation=self._target.generation,
            rank=0,
            num_ranks=1,
            num_computed_tokens=num_computed_tokens,
            groups=groups.values(),
            first_tokens=[
                pb.FirstToken(choice_index=token.choice_index, token_id=token.token_id, finished=token.finished)
                for token in first_tokens
            ],
            attempt=attempt,
        )
        try:
            await self._stub.Commit(request, timeout=CONTROL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error

    def close(self) -> None:
        if self._stream is not None and not self._ended:
            self._stream.cancel()

    def _frames(self, blocks: Sequence[Block]) -> Iterator[list[Block]]:
        """Neighbours of one group whose bytes fill about a frame; a larger block is split when encoded."""
        frame: list[Block] = []
        num_bytes = 0
        for block in blocks:
            size = len(self._reader.block_bytes(block[0].group_id, block[1]))
            if frame and (num_bytes + size > FRAME_BYTES or frame[0][0].group_id != block[0].group_id):
                yield frame
                frame, num_bytes = [], 0
            frame.append(block)
            num_bytes += size
        if frame:
            yield frame

    def _encode(self, blocks: Sequence[Block]) -> list[bytes]:
        slabs = []
        for ref, block_id in blocks:
            slab = self._reader.block_bytes(ref.group_id, block_id)
            self._checksums[ref] = zlib.crc32(slab)
            self.num_sent_bytes += len(slab)
            slabs.append((ref, slab))
        if len(slabs) == 1 and len(slabs[0][1]) > FRAME_BYTES:
            ref, slab = slabs[0]
            parts = [(offset, slab[offset : offset + FRAME_BYTES]) for offset in range(0, len(slab), FRAME_BYTES)]
            return [self._frame([(ref, offset, part)]) for offset, part in parts]
        return [self._frame([(ref, 0, slab) for ref, slab in slabs])]

    def _frame(self, extents: Sequence[tuple[BlockRef, int, memoryview]]) -> bytes:
        header = pb.PushHeader(
            ticket_id=self._target.ticket_id,
            generation=self._target.generation,
            rank=0,
            group_id=extents[0][0].group_id,
            extents=[
                pb.Extent(logical_block=ref.logical_block, offset=offset, length=len(data))
                for ref, offset, data in extents
            ],
        )
        return encode_frame(header, [data for _, _, data in extents])

    async def _write(self, frame: bytes) -> None:
        assert self._stream is not None
        try:
            await self._stream.write(frame)
        except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
            # A write that meets the stream's end says nothing of its reason.
            raise await self._stream_error() from None

    async def _end_stream(self) -> None:
        if self._stream is None or self._ended:
            return
        try:
            await self._stream.done_writing()
            response = await self._stream
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error
        if response.received_bytes != self.num_sent_bytes:
            raise TransferError(f"the sink took {response.received_bytes} of {self.num_sent_bytes} bytes")
        self._ended = True

    async def _stream_error(self) -> SlipstreamError:
        """Why the sink ended the stream early."""
        assert self._stream is not None
        try:
            await self._stream
        except grpc.aio.AioRpcError as error:
            return error_from_call(error)
        return UnavailableError("the sink ended the stream early")
