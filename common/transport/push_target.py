"""Where a transfer goes, as the source knows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from common.errors import InvalidRequestError
from common.kv.block_map import GroupMap
from protos import layout_pb2
from protos import transfer_pb2 as pb


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEndpoint:
    """One rank of a sink. Without transports and checksums it is of the first protocol: gRPC and CRC-32."""

    address: str  # host:port
    transports: tuple[str, ...] = ()
    host_id: str = ""
    island: str = ""
    checksums: tuple[str, ...] = ()

    @staticmethod
    def from_wire(message: layout_pb2.RankEndpoint) -> SinkEndpoint:
        return SinkEndpoint(
            address=message.address,
            transports=tuple(message.transports),
            host_id=message.host_id,
            island=message.island,
            checksums=tuple(message.checksums),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PushTarget:
    """A ticket at a sink. `sinks` are the sink's ranks; `maps` is None until it is mapped."""

    ticket_id: str
    generation: int
    sinks: tuple[SinkEndpoint, ...]
    maps: tuple[GroupMap, ...] | None

    @property
    def address(self) -> str:
        """Of the one rank that is served, host:port."""
        return self.sinks[0].address

    @staticmethod
    def from_wire(message: pb.PushTarget) -> PushTarget:
        """Raises InvalidRequestError when something is missing."""
        if not message.HasField("ticket"):
            raise InvalidRequestError("push_target", "needs a ticket")
        if len(message.sink_ranks) != 1:
            raise InvalidRequestError("push_target.sink_ranks", f"one rank is served, got {len(message.sink_ranks)}")
        return PushTarget(
            ticket_id=message.ticket.ticket_id,
            generation=message.ticket.generation,
            sinks=tuple(SinkEndpoint.from_wire(rank) for rank in message.sink_ranks),
            maps=decode_maps(message.map) if message.HasField("map") else None,
        )


def encode_maps(maps: Iterable[GroupMap]) -> pb.BlockMap:
    return pb.BlockMap(
        groups=[
            pb.GroupBlockMap(group_id=group.group_id, block_ids=group.block_ids, present=group.present)
            for group in maps
        ]
    )


def decode_maps(message: pb.BlockMap) -> tuple[GroupMap, ...]:
    """Raises InvalidRequestError when a map contradicts itself."""
    if any(len(group.block_ids) != len(group.present) for group in message.groups):
        raise InvalidRequestError("push_target.map", "block_ids and present differ in length")
    return tuple(
        GroupMap(group_id=group.group_id, block_ids=tuple(group.block_ids), present=tuple(group.present))
        for group in message.groups
    )
