"""Malformed and hostile messages at every method of every service of a real fleet.

Each is answered in time, and never as a fault of ours; afterwards every process lives, no block is held, and the same
prompt has the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from protos import admin_pb2, inference_pb2, transfer_pb2, worker_pb2
from tests.support.hostile_fleet import FUZZ, Fleet, send
from tests.support.hostile_messages import encoded

# Texts that mean something to a process, by field.
KNOWN = {"worker_id": "decode-0", "source_worker_id": "prefill-0", "model": "tiny", "text": "Hello"}
KNOWN |= {"service": "slipstream.v1.Admin", "router_id": "fuzz"}
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


@pytest.mark.parametrize("target", targets(), ids=str)
def test_hostile_messages(fleet: Fleet, unharmed: None, target: Target) -> None:
    one = encoded(target.method.input_type, KNOWN)

    @settings(max_examples=12, **FUZZ)
    @given(requests=st.lists(one, min_size=1, max_size=3))
    def attack(requests: list[bytes]) -> None:
        send(fleet.channels[target.process], target.method, requests)

    attack()
