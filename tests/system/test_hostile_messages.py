"""Malformed and hostile messages at every method of every service of a real fleet.

Each is answered in time, and never as a fault of ours; afterwards every process lives, no block is held, and the same
prompt has the same answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.config import Role
from protos import admin_pb2, inference_pb2, transfer_pb2, worker_pb2
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.hostile_messages import encoded
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, worker_of_role

CALL_TIMEOUT_S = 5.0
# A stream is ended after so long: it may have nothing more to say.
STREAM_TIMEOUT_S = 0.3
PROMPT = [5, 6, 7, 8] * 12
FAULTS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
SERVICES: dict[str, tuple[tuple[Any, str], ...]] = {
    "router": ((inference_pb2, "Inference"), (admin_pb2, "Admin")),
    "prefill": ((worker_pb2, "PrefillWorker"), (worker_pb2, "Registration"), (admin_pb2, "Admin")),
    "decode": (
        (worker_pb2, "DecodeWorker"),
        (transfer_pb2, "KvTransfer"),
        (worker_pb2, "Registration"),
        (admin_pb2, "Admin"),
    ),
}
COMMON = ((health_pb2, "Health"), (reflection_pb2, "ServerReflection"))
FUZZ = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@dataclass(frozen=True, slots=True)
class Target:
    """A method of one process."""

    process: str
    method: MethodDescriptor

    def __str__(self) -> str:
        return f"{self.process}-{self.method.containing_service.name}.{self.method.name}"


def targets() -> list[Target]:
    return [
        Target(process, method)
        for process, services in SERVICES.items()
        for module, name in (*services, *COMMON)
        for method in module.DESCRIPTOR.services_by_name[name].methods
    ]


@dataclass(frozen=True, slots=True)
class Fleet:
    cluster: Cluster
    channels: dict[str, grpc.Channel]
    known: dict[str, str]

    def answer(self) -> tuple[int, ...]:
        with Client(self.cluster.grpc_addresses) as client:
            return client.generate(PROMPT, max_tokens=8, temperature=0.0, ignore_eos=True).choices[0].token_ids


@pytest.fixture(scope="module")
def fleet(tiny_model: Path) -> Iterator[Fleet]:
    with Cluster(small_cluster_config(tiny_model, max_local_prefill_tokens=0)) as cluster:
        addresses = {
            "router": cluster.grpc_addresses[0],
            "prefill": worker_of_role(cluster, Role.PREFILL).address,
            "decode": worker_of_role(cluster, Role.DECODE).address,
        }
        known = {"worker_id": "decode-0", "source_worker_id": "prefill-0", "model": "tiny", "text": "Hello"}
        known |= {"address": addresses["decode"], "service": "slipstream.v1.Admin", "router_id": "fuzz"}
        channels = {name: grpc.insecure_channel(address) for name, address in addresses.items()}
        yield Fleet(cluster, channels, known)
        for channel in channels.values():
            channel.close()


@pytest.fixture
def unharmed(fleet: Fleet) -> Iterator[None]:
    """Before and after: the same answer, from the same processes, which hold nothing."""
    before = fleet.answer()
    yield
    assert fleet.cluster.newly_ended() == []
    assert_nothing_left(fleet.cluster)
    assert fleet.answer() == before


def send(channel: grpc.Channel, method: MethodDescriptor, requests: list[bytes]) -> None:
    """Sends them, reads what comes for a while, and ends the call."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    timeout_s = STREAM_TIMEOUT_S if method.client_streaming or method.server_streaming else CALL_TIMEOUT_S
    opening = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[method.client_streaming, method.server_streaming]
    sent: Any = iter(requests) if method.client_streaming else requests[0]
    call: Any = opening(path)
    try:
        answer = call(sent, timeout=timeout_s)
        if method.server_streaming:
            list(itertools.islice(answer, 50))
            answer.cancel()
    except grpc.RpcError as error:
        refused: Any = error
    else:
        return
    assert refused.code() not in FAULTS, f"{path}: {refused.code()}: {refused.details()}"
    if refused.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        assert method.client_streaming or method.server_streaming, f"{path} does not answer"


@pytest.mark.parametrize("target", targets(), ids=str)
def test_hostile_messages(fleet: Fleet, unharmed: None, target: Target) -> None:
    one = encoded(target.method.input_type, fleet.known)

    @settings(max_examples=12, **FUZZ)
    @given(requests=st.lists(one, min_size=1, max_size=3))
    def attack(requests: list[bytes]) -> None:
        send(fleet.channels[target.process], target.method, requests)

    attack()
