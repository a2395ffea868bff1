"""A worker's transfers to nowhere: for tests in which no block is sent."""

from __future__ import annotations

from common.transport.channels import PeerChannels
from common.transport.grpc_sender import GrpcSender
from common.worker.departures import Departures
from common.worker.map_timing import MapTiming
from common.worker.worker import Worker
from tests.support.engine import tiny_spec


class NoBlocks:
    """A BlockReader of which nothing is asked."""

    def block_bytes(self, group_id: int, block_id: int) -> memoryview:
        raise AssertionError("the sink has every block")


def departures_of(worker: Worker, channels: PeerChannels) -> Departures:
    return Departures(
        worker,
        channels,
        lambda target: GrpcSender(target, NoBlocks(), channels),
        MapTiming(tiny_spec(), chunk_tokens=16),
        lease_s=10.0,
    )
