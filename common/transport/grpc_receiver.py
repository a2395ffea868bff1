"""The KvTransfer service: blocks over gRPC, and the control messages of every transport."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc

from common.errors import TransferError
from common.kv.ticket import Ticket
from common.transport.announced_arrivals import AnnouncedArrivals
from common.transport.arriving_blocks import ArrivingBlocks, ArrivingStream, check_lengths
from common.transport.checksum import Checksum
from common.transport.commit_codec import decode_commit
from common.transport.frame import decode_frame
from common.transport.pair_host import PairHost
from common.transport.push_target import encode_maps
from protos import transfer_pb2 as pb

SERVICE_NAME = "slipstream.v1.KvTransfer"
TRANSPORT = "grpc"

# Gives a ticket's blocks their places. Raises OverloadedError, StaleTicketError.
MapTicket = Callable[[str], Awaitable[Ticket]]

Context = grpc.aio.ServicerContext[Any, Any]


class GrpcReceiver:
    """State of tickets is the sink's; bytes go to the pool.

    `map_ticket` gives a ticket's blocks their places when a source asks for them. `pairs` is None outside an island.
    """

    def __init__(
        self,
        blocks: ArrivingBlocks,
        map_ticket: MapTicket,
        announced: AnnouncedArrivals,
        pairs: PairHost | None = None,
    ) -> None:
        self._map_ticket = map_ticket
        self._blocks = blocks
        self._announced = announced
        self.pairs = pairs

    def handler(self) -> grpc.GenericRpcHandler:
        """The service with raw frames: protobuf would copy every payload."""
        handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "Push": grpc.stream_unary_rpc_method_handler(
                self.push, request_deserializer=None, response_serializer=pb.PushResponse.SerializeToString
            ),
            "Announce": grpc.stream_stream_rpc_method_handler(
                self._announced.serve,
                request_deserializer=pb.AnnounceRequest.FromString,
                response_serializer=pb.AnnounceResponse.SerializeToString,
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
        }
        if self.pairs is not None:
            handlers["Pair"] = grpc.stream_stream_rpc_method_handler(
                self.pairs.serve,
                request_deserializer=pb.PairRequest.FromString,
                response_serializer=pb.PairResponse.SerializeToString,
            )
        return grpc.method_handlers_generic_handler(SERVICE_NAME, handlers)

    async def map(self, request: pb.MapRequest, context: Context) -> pb.MapResponse:
        ticket = await self._map_ticket(request.ticket_id)
        who = pb.Ticket(ticket_id=ticket.ticket_id, generation=ticket.generation)
        return pb.MapResponse(ticket=who, map=encode_maps(ticket.maps))

    async def push(self, frames: AsyncIterator[bytes], context: Context) -> pb.PushResponse:
        """One of a source rank's streams for one ticket."""
        first = await anext(aiter(frames), None)
        if first is None:
            return pb.PushResponse()
        header, payload = decode_frame(first)
        del first
        with self._blocks.stream(header.ticket_id, header.generation, header.rank, TRANSPORT) as stream:
            await _take(stream, header, payload)
            async for frame in frames:
                del payload  # gRPC's next buffer is then the one before: two that take turns leave the cache
                header, payload = decode_frame(frame)
                del frame
                if header.ticket_id != stream.ticket_id:
                    raise TransferError("one stream serves one ticket")
                await _take(stream, header, payload)
        return pb.PushResponse(received_bytes=stream.num_bytes)

    async def commit(self, request: pb.CommitRequest, context: Context) -> pb.CommitResponse:
        """Answers when the engine has the request."""
        checksum, commit = decode_commit(request)
        if checksum is Checksum.NONE and self._blocks.verify:
            raise TransferError("this worker takes no blocks without checksums")
        checksums_here = await self._blocks.checksums_here(request.ticket_id, list(commit.checksums), checksum)
        try:
            self._blocks.sink.table.commit(request.ticket_id, commit, checksums_here, self._blocks.sink.now())
        finally:
            waiting = self._blocks.settle()
        await asyncio.gather(*waiting)
        self._blocks.count_blocks(len(commit.checksums))
        return pb.CommitResponse()

    async def fail(self, request: pb.FailRequest, context: Context) -> pb.FailResponse:
        sink = self._blocks.sink
        sink.table.abort(request.ticket_id, f"the source gave up: {request.reason}", sink.now())
        self._blocks.settle()
        return pb.FailResponse()


async def _take(stream: ArrivingStream, header: pb.PushHeader, payload: memoryview) -> None:
    check_lengths(header.extents, len(payload))
    await stream.take_bytes(stream.place(header.group_id, header.extents), payload)
