"""Which transports carry a request's blocks: what both ends offer and can reach, the source's favourite first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from common.transport.announced_stream import AnnouncedStream, SourceLane
from common.transport.channels import PeerChannels
from common.transport.checksum import Checksum, choose_checksum
from common.transport.grpc_stream import GrpcStream
from common.transport.nixl_agent import NixlAgent
from common.transport.nixl_lane import NixlLane
from common.transport.pair_source import PairSource
from common.transport.push_target import PushTarget, SinkEndpoint
from common.transport.shared_memory_lane import SharedMemorySource
from common.transport.source_blocks import SourceBlocks
from common.transport.tensor_blocks import TensorBlocks
from common.transport.ticket_sender import OpenStream, TicketSender
from common.transport.transfer_counters import TransferCounters


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTransports:
    """What this worker can send by. `names`: best first; None: not here."""

    names: tuple[str, ...]
    host_id: str
    shared_memory: SharedMemorySource | None = None
    pairs: PairSource | None = None
    nixl: NixlAgent | None = None


class SenderFactory:
    """Opens the sender of each transfer out of this worker. Owned by the event loop."""

    def __init__(
        self,
        blocks: TensorBlocks,
        channels: PeerChannels,
        counters: TransferCounters,
        transports: SourceTransports,
        checksum: Checksum = Checksum.XXH3_64,
    ) -> None:
        self._blocks = blocks
        self._channels = channels
        self._counters = counters
        self.transports = transports
        self._checksum = checksum

    def open(self, target: PushTarget) -> TicketSender:
        sink = target.sinks[0]
        blocks = SourceBlocks(self._blocks, choose_checksum(self._checksum, sink.checksums))
        streams: list[OpenStream] = [_announced(target, blocks, self._channels, lane) for lane in self._lanes(sink)]
        streams.append(lambda: GrpcStream(target, blocks, self._channels))
        return TicketSender(target, blocks, self._channels, streams, self._counters)

    async def close(self) -> None:
        if self.transports.pairs is not None:
            await self.transports.pairs.close()

    def _lanes(self, sink: SinkEndpoint) -> Iterator[SourceLane]:
        """One at most: what it fails at, gRPC does."""
        for name in before_grpc(self.transports.names):
            lane = self._lane(name, sink) if name in sink.transports else None
            if lane is not None:
                yield lane
                return

    def _lane(self, name: str, sink: SinkEndpoint) -> SourceLane | None:
        here = self.transports
        match name:
            case "shm" if here.shared_memory is not None and here.host_id == sink.host_id:
                return here.shared_memory.lane(sink.address) if here.shared_memory.reaches(sink.address) else None
            case "island" if here.pairs is not None and here.pairs.island == sink.island:
                return here.pairs.lane(sink.address) if here.pairs.reaches(sink.address) else None
            case "nixl" if here.nixl is not None:
                return NixlLane(here.nixl, self._blocks)
        return None


def before_grpc(names: Iterable[str]) -> Iterator[str]:
    """What is preferred to gRPC."""
    for name in names:
        if name == "grpc":
            return
        yield name


def _announced(target: PushTarget, blocks: SourceBlocks, channels: PeerChannels, lane: SourceLane) -> OpenStream:
    return lambda: AnnouncedStream(target, blocks, channels, lane)
