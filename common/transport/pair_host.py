"""Groups of two that this worker receives by."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import grpc
import torch

from common.errors import InvalidRequestError, OverloadedError, TransferError, UnavailableError
from common.transport.announced_arrivals import SinkLane
from common.transport.arriving_blocks import ArrivingStream, PlacedPart
from common.transport.pair import OPERATION_TIMEOUT_S, SINK_RANK, local_address_towards
from common.transport.pair_link import PairLink
from common.transport.pair_source import BATCH_BYTES
from common.transport.tensor_blocks import TensorBlocks, write_tensor
from protos import transfer_pb2 as pb

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class PairHost:
    """Owned by the event loop. At most `max_pairs` groups live: the one longest unused makes room."""

    def __init__(
        self, *, island: str, blocks: TensorBlocks, max_pairs: int, timeout_s: float = OPERATION_TIMEOUT_S
    ) -> None:
        self._island = island
        self._blocks = blocks
        self._max_pairs = max_pairs
        self._timeout_s = timeout_s
        self._links: OrderedDict[str, PairLink] = OrderedDict()

    @property
    def num_pairs(self) -> int:
        return len(self._links)

    async def serve(self, requests: AsyncIterator[pb.PairRequest], context: Context) -> None:
        """The Pair call: the group lives as long as it."""
        first = await context.read()
        if first is grpc.aio.EOF or first.WhichOneof("kind") != "open":
            raise InvalidRequestError("open", "must be the call's first message")
        if first.open.island != self._island:
            raise UnavailableError(f"this worker is of island {self._island!r}, not {first.open.island!r}")
        if first.open.pair_id in self._links:
            raise InvalidRequestError("open.pair_id", "is taken")
        self._make_room()
        link = PairLink(
            SINK_RANK,
            self._blocks.device,
            local_address_towards(_peer_host(context)),
            lambda entry: pb.PairResponse(entry=entry),
            self._timeout_s,
        )
        self._links[first.open.pair_id] = link
        try:
            await _form_and_hold(link, context)
        finally:
            link.pair.close("the call has ended")
            self._links.pop(first.open.pair_id, None)

    async def open(self, message: pb.AnnounceOpen) -> SinkLane:
        """A LaneOpener."""
        link = self._links.get(message.pair.pair_id)
        if link is None or link.pair.closed:
            raise UnavailableError("island: no such group of two here")
        self._links.move_to_end(message.pair.pair_id)
        return PairTaker(link, self._blocks)

    def _make_room(self) -> None:
        while len(self._links) >= self._max_pairs:
            idle = next((pair_id for pair_id, link in self._links.items() if link.num_users == 0), None)
            if idle is None:
                raise OverloadedError(f"island: all {self._max_pairs} groups of two are in use")
            self._links.pop(idle).pair.close("another peer needs the room")


class PairTaker:
    """A SinkLane over a group."""

    is_plain_copy = False

    def __init__(self, link: PairLink, blocks: TensorBlocks) -> None:
        self._link = link
        self._blocks = blocks
        self._staging = torch.empty(BATCH_BYTES, dtype=torch.uint8, device=blocks.device)
        self._open = True
        link.num_users += 1

    def take(self, batch: pb.Batch, stream: ArrivingStream, parts: list[PlacedPart]) -> None:
        num_bytes = sum(part.length for part in parts)
        if num_bytes > BATCH_BYTES:
            raise TransferError("island: a batch is larger than any may be")
        received = self._staging[:num_bytes]
        self._link.pair.receive(received)
        write_tensor(stream, parts, received, self._blocks)

    def close(self, *, clean: bool) -> None:
        if not self._open:
            return
        self._open = False
        self._link.num_users -= 1
        if not clean:
            self._link.pair.close("a stream failed")


async def _form_and_hold(link: PairLink, context: Context) -> None:
    holding = asyncio.create_task(link.exchange(context.read, context.write, lambda message: None))
    try:
        await link.form()
        link.say(pb.PairResponse(formed=True))
        await holding
    finally:
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)


def _peer_host(context: Context) -> str:
    """Of `ipv4:127.0.0.1:5000` or `ipv6:[::1]:5000`."""
    _, _, address = context.peer().partition(":")
    host, _, _ = address.rpartition(":")
    return host.strip("[]")
