"""Every process has the standard health and reflection services."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from common.config import Role
from slipstream.client import Client
from slipstream.launcher import Cluster

SERVICES = {
    "router": {"slipstream.v1.Inference", "slipstream.v1.Admin"},
    "prefill": {"slipstream.v1.PrefillWorker", "slipstream.v1.Registration", "slipstream.v1.Admin"},
    "decode": {
        "slipstream.v1.DecodeWorker",
        "slipstream.v1.KvTransfer",
        "slipstream.v1.Registration",
        "slipstream.v1.Admin",
    },
}


@pytest.fixture(params=SERVICES)
def channel(request: pytest.FixtureRequest, small_cluster: Cluster) -> Iterator[tuple[str, grpc.Channel]]:
    addresses = {worker.role: worker.address for worker in small_cluster.workers}
    kind = request.param
    address = small_cluster.grpc_addresses[0] if kind == "router" else addresses[Role(kind)]
    with grpc.insecure_channel(address) as channel:
        yield kind, channel


def test_health(channel: tuple[str, grpc.Channel]) -> None:
    kind, open_channel = channel
    for name in ("", *SERVICES[kind]):
        answer = health_pb2_grpc.HealthStub(open_channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_describes_the_services(channel: tuple[str, grpc.Channel]) -> None:
    kind, open_channel = channel
    database = ProtoReflectionDescriptorDatabase(open_channel)
    assert set(database.get_services()) >= SERVICES[kind] | {"grpc.health.v1.Health"}
    pool = DescriptorPool(database)
    for name in SERVICES[kind]:
        assert pool.FindServiceByName(name).methods


def test_status_names_the_fleet(small_cluster: Cluster) -> None:
    with Client(small_cluster.grpc_addresses) as client:
        fleet = client.status()
    # Workers that other tests had beside the cluster's are remembered for a while.
    there = [worker for worker in fleet.workers if worker.reachable]
    assert {worker.worker_id: worker.role for worker in there} == {
        worker.id: worker.role.value for worker in small_cluster.workers
    }
    assert all(worker.load.num_blocks for worker in there)
    assert fleet.router is not None
    assert fleet.router.ready
    assert not fleet.router.index_degraded
