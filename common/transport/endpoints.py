"""The two ends of transfers that a worker has: made from its settings."""

from __future__ import annotations

from pathlib import Path

from common.config import TransferConfig
from common.kv.spec import KVCacheSpec
from common.transport.announced_arrivals import AnnouncedArrivals, LaneOpener
from common.transport.arriving_blocks import ArrivingBlocks
from common.transport.channels import PeerChannels
from common.transport.checksum import Checksum
from common.transport.grpc_receiver import GrpcReceiver, MapTicket
from common.transport.nixl_agent import NixlAgent
from common.transport.nixl_lane import NixlSink
from common.transport.offer import host_id, offered_transports
from common.transport.pair_host import PairHost
from common.transport.pair_source import PairSource
from common.transport.sender_factory import SenderFactory, SourceTransports
from common.transport.shared_memory import sweep_orphans
from common.transport.shared_memory_lane import SharedMemorySink, SharedMemorySource
from common.transport.tensor_blocks import TensorBlocks
from common.transport.ticket_sink import TicketSink
from common.transport.transfer_counters import TransferCounters


def make_source(
    config: TransferConfig, blocks: TensorBlocks, channels: PeerChannels, counters: TransferCounters
) -> SenderFactory:
    names = offered_transports(config)
    directory = Path(config.shm_directory)
    shared_memory = None
    if "shm" in names:
        sweep_orphans(directory)
        shared_memory = SharedMemorySource(directory)
    pairs = None
    if config.island is not None and "island" in names:
        pairs = PairSource(island=config.island, blocks=blocks, channels=channels, max_pairs=config.max_island_peers)
    nixl = NixlAgent(blocks) if "nixl" in names else None
    transports = SourceTransports(names=names, host_id=host_id(), shared_memory=shared_memory, pairs=pairs, nixl=nixl)
    return SenderFactory(blocks, channels, counters, transports, Checksum(config.kv_checksum))


def make_sink(
    config: TransferConfig,
    sink: TicketSink,
    map_ticket: MapTicket,
    pool: TensorBlocks,
    counters: TransferCounters,
    spec: KVCacheSpec,
) -> GrpcReceiver:
    verify = config.kv_checksum != Checksum.NONE.value
    blocks = ArrivingBlocks(sink, pool, counters, spec=spec, verify=verify)
    openers: dict[str, LaneOpener] = {}
    if "shm" in offered_transports(config):
        openers["shared_memory"] = SharedMemorySink(Path(config.shm_directory)).open
    if "nixl" in offered_transports(config):
        openers["nixl"] = NixlSink(NixlAgent(pool), pool).open
    pairs = None
    if config.island is not None and "island" in offered_transports(config):
        pairs = PairHost(island=config.island, blocks=pool, max_pairs=config.max_island_peers)
        openers["pair"] = pairs.open
    return GrpcReceiver(blocks, map_ticket, AnnouncedArrivals(blocks, openers), pairs)
