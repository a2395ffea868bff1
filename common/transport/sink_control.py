"""What a source says to a sink beside the bytes: the same for every transport."""

from __future__ import annotations

import dataclasses
import logging

import grpc

from common.net.status import error_from_call
from common.transport.channels import PeerChannels
from common.transport.push_target import PushTarget, decode_maps
from protos import transfer_pb2 as pb
from protos import transfer_pb2_grpc

logger = logging.getLogger(__name__)

CONTROL_TIMEOUT_S = 5.0


class SinkControl:
    """Stateless but for the channels. Owned by the event loop."""

    def __init__(self, channels: PeerChannels) -> None:
        self._channels = channels

    async def map(self, target: PushTarget) -> PushTarget:
        """The target with the places of its blocks.

        Raises OverloadedError when the sink has no blocks to give yet, StaleTicketError when the ticket has ended.
        """
        request = pb.MapRequest(ticket_id=target.ticket_id)
        try:
            answer = await self._stub(target).Map(request, timeout=CONTROL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error
        return dataclasses.replace(target, generation=answer.ticket.generation, maps=decode_maps(answer.map))

    async def fail(self, target: PushTarget, reason: str) -> None:
        """Gives up. Never raises: a sink that can't be told finds out by the lease."""
        request = pb.FailRequest(ticket_id=target.ticket_id, generation=target.generation, reason=reason)
        try:
            await self._stub(target).Fail(request, timeout=CONTROL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            logger.debug("could not tell the sink that a transfer failed: %s", error.details())

    def _stub(self, target: PushTarget) -> transfer_pb2_grpc.KvTransferStub:
        return transfer_pb2_grpc.KvTransferStub(self._channels.get(target.address))
