"""The receiving end of gRPC transfers: frames scatter straight into the pool's slots."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from common.errors import TransferError
from common.kv.first_token import FirstToken
from common.kv.sender import BlockWriter
from common.kv.ticket import BlockRef, RankCommit, Ticket
from common.transport.frame import decode_frame
from common.transport.push_target import encode_maps
from common.transport.ticket_sink import TicketSink
from common.transport.transfer_counters import TransferCounters
from common.transport.uninterrupted import uninterrupted
from protos import transfer_pb2 as pb

SERVICE_NAME = "slipstream.v1.KvTransfer"

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """A part of a block that has a place: written in a thread."""

    ref: BlockRef
    block_id: int
    offset: int
    data: memoryview


class GrpcReceiver:
    """The KvTransfer service. State of tickets is the sink's; bytes go to the writer.

    `map_ticket` gives a ticket's blocks their places when a source asks for them.
    """

    def __init__(
        self,
        sink: TicketSink,
        writer: BlockWriter,
        counters: TransferCounters,
        map_ticket: Callable[[str], Awaitable[Ticket]],
    ) -> None:
        self._map_ticket = map_ticket
        self._sink = sink
        self._writer = writer
        self._counters = counters
        # CRC-32 of blocks that came whole: their bytes were in the cache then, so it is not computed again.
        self._checksums: dict[str, dict[BlockRef, int]] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        """The service with raw frames: protobuf would copy every payload."""
        return grpc.method_handlers_generic_handler(
            SERVICE_NAME,
            {
                "Push": grpc.stream_unary_rpc_method_handler(
                    self.push,
                    request_deserializer=None,
                    response_serializer=pb.PushResponse.SerializeToString,
                ),
                "Map": grpc.unary_unary_rpc_method_handler(
                    self.map,
                    request_deserializer=pb.MapRequest.FromString,
                    response_serializer=pb.MapResponse.SerializeToString,
                ),
                "Commit": grpc.unary_unary_rpc_method_handler(
                    self.commit,
                    request_deserializer=pb.CommitRequest.FromString,
                    response_serializer=pb.CommitResponse.SerializeToString,
                ),
                "Fail": grpc.unary_unary_rpc_method_handler(
                    self.fail,
                    request_deserializer=pb.FailRequest.FromString,
                    response_serializer=pb.FailResponse.SerializeToString,
                ),
            },
        )

    async def map(self, request: pb.MapRequest, context: Context) -> pb.MapResponse:
        ticket = await self._map_ticket(request.ticket_id)
        who = pb.Ticket(ticket_id=ticket.ticket_id, generation=ticket.generation)
        return pb.MapResponse(ticket=who, map=encode_maps(ticket.maps))

    async def push(self, frames: AsyncIterator[bytes], context: Context) -> pb.PushResponse:
        """One source rank's stream for one ticket."""
        first = await anext(aiter(frames), None)
        if first is None:
            return pb.PushResponse()
        num_bytes = 0
        header, payload = decode_frame(first)
        try:
            with self._sink.stream(header.ticket_id, generation=header.generation, rank=header.rank) as stream_id:
                num_bytes += await self._take(header, payload, stream_id)
                async for frame in frames:
                    other, payload = decode_frame(frame)
                    if other.ticket_id != header.ticket_id:
                        raise TransferError("one stream serves one ticket")
                    num_bytes += await self._take(other, payload, stream_id)
        finally:
            self._forget_ended()
        return pb.PushResponse(received_bytes=num_bytes)

    async def commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        """Answers when the engine has the request."""
        checksums: dict[BlockRef, int] = {}
        for group in request.groups:
            if len(group.logical_blocks) != len(group.checksums):
                raise TransferError("commit: logical_blocks and checksums differ in length")
            refs = [BlockRef(group.group_id, logical_block) for logical_block in group.logical_blocks]
            checksums.update(zip(refs, group.checksums, strict=True))
        commit = RankCommit(
            generation=request.generation,
            rank=request.rank,
            num_ranks=request.num_ranks,
            num_computed_tokens=request.num_computed_tokens,
            checksums=checksums,
            first_tokens=tuple(
                FirstToken(choice_index=token.choice_index, token_id=token.token_id, finished=token.finished)
                for token in request.first_tokens
            ),
            attempt=request.attempt,
        )
        checksums_here = await self._checksums_here(request.ticket_id, list(checksums))
        try:
            self._sink.table.commit(request.ticket_id, commit, checksums_here, self._sink.now())
        finally:
            waiting = self._sink.settle()
            self._forget_ended()
        await asyncio.gather(*waiting)
        self._counters.received_blocks += len(checksums)
        return pb.CommitResponse()

    async def fail(self, request: pb.FailRequest, context: Context) -> pb.FailResponse:
        self._sink.table.abort(request.ticket_id, f"the source gave up: {request.reason}", self._sink.now())
        self._sink.settle()
        self._forget_ended()
        return pb.FailResponse()

    async def _take(self, header: pb.PushHeader, payload: memoryview, stream_id: int) -> int:
        """Writes one frame. Returns its payload's bytes."""
        placed = self._place(header, payload, stream_id)
        checksums = await uninterrupted(self._write, placed)
        known = self._checksums.setdefault(header.ticket_id, {})
        for part in placed:
            known.pop(part.ref, None)  # written anew
        known.update(checksums)
        self._counters.received_bytes += len(payload)
        return len(payload)

    def _place(self, header: pb.PushHeader, payload: memoryview, stream_id: int) -> list[_Placed]:
        if sum(extent.length for extent in header.extents) != len(payload):
            raise TransferError("push frame: extents and payload differ in length")
        placed = []
        start = 0
        for extent in header.extents:
            ref = BlockRef(header.group_id, extent.logical_block)
            block_id = self._sink.table.place(
                header.ticket_id,
                stream_id,
                ref,
                offset=extent.offset,
                length=extent.length,
                now=self._sink.now(),
            )
            data = payload[start : start + extent.length]
            placed.append(_Placed(ref=ref, block_id=block_id, offset=extent.offset, data=data))
            start += extent.length
        return placed

    def _write(self, placed: Sequence[_Placed]) -> dict[BlockRef, int]:
        checksums = {}
        for part in placed:
            self._writer.write_block(part.ref.group_id, part.block_id, part.offset, part.data)
            slab = self._writer.block_bytes(part.ref.group_id, part.block_id)
            if len(part.data) == len(slab):
                checksums[part.ref] = zlib.crc32(slab)
        return checksums

    async def _checksums_here(self, ticket_id: str, refs: Sequence[BlockRef]) -> dict[BlockRef, int]:
        known = self._checksums.get(ticket_id, {})
        ticket = self._sink.table.get(ticket_id)
        block_ids = {group.group_id: group.block_ids for group in ticket.maps}
        unknown = [ref for ref in refs if ref not in known and ref in ticket.received]

        def compute() -> dict[BlockRef, int]:
            return {
                ref: zlib.crc32(self._writer.block_bytes(ref.group_id, block_ids[ref.group_id][ref.logical_block]))
                for ref in unknown
            }

        return known | (await uninterrupted(compute) if unknown else {})

    def _forget_ended(self) -> None:
        """Of all tickets: one whose source died between its stream's end and its commit is never named again."""
        for ticket_id in [known for known in self._checksums if not self._sink.table.is_open(known)]:
            del self._checksums[ticket_id]
