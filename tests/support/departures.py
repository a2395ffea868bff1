"""A worker's transfers to nowhere: for tests in which no block is sent."""

from __future__ import annotations

from common.transport.channels import PeerChannels
from common.transport.sender_factory import SenderFactory, SourceTransports
from common.worker.departures import Departures
from common.worker.map_timing import MapTiming
from common.worker.worker import Worker
from tests.support.engine import tiny_spec


class NoBlocks:
    """Blocks of which nothing is asked."""

    in_host_memory = True

    def block_size_bytes(self, group_id: int) -> int:
        raise AssertionError("the sink has every block")

    def block_bytes(self, group_id: int, block_id: int) -> memoryview:
        raise AssertionError("the sink has every block")


def departures_of(worker: Worker, channels: PeerChannels) -> Departures:
    return Departures(
        worker,
        channels,
        SenderFactory(NoBlocks(), channels, worker.counters, SourceTransports(names=("grpc",), host_id="")).open,
        MapTiming(tiny_spec(), chunk_tokens=16),
        lease_s=10.0,
    )
