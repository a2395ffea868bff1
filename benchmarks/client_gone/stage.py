"""The stages of a request, and how to tell from outside that a fleet's newest request is in one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import grpc

from common.config import Role
from protos import admin_pb2, admin_pb2_grpc, inference_pb2, inference_pb2_grpc, worker_pb2
from slipstream.launcher import Cluster

RPC_TIMEOUT_S = 10.0


class Stage(StrEnum):
    QUEUED = "queued at the router"
    RESERVED = "reserved, waits for prefill"
    PREFILLING = "prefilling"
    TRANSFERRING = "transferring"
    DECODING = "decoding"


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """What a fleet of one prefill and one decode worker holds."""

    num_at_router: int
    prefill: worker_pb2.LoadReport
    decode: worker_pb2.LoadReport

    @property
    def num_legs(self) -> int:
        """Requests and reservations on both workers: two for a prompt that is computed for decode, then one."""
        prefill, decode = self.prefill, self.decode
        num_on_decode = decode.num_waiting + decode.num_running + decode.num_reservations
        return prefill.num_waiting + prefill.num_running + num_on_decode

    def holds_more_than(self, other: Census) -> bool:
        return (
            self.num_at_router > other.num_at_router
            or self.num_legs > other.num_legs
            or self.decode.num_quarantined_blocks > other.decode.num_quarantined_blocks
        )


class Fleet:
    """A running cluster, looked at by its Admin services over connections that stay."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._stack = ExitStack()
        self.router = self._connect(cluster.grpc_addresses[0])
        self._admin = admin_pb2_grpc.AdminStub(self.router)
        self._workers = {
            worker.role: admin_pb2_grpc.AdminStub(self._connect(worker.address)) for worker in cluster.workers
        }

    def close(self) -> None:
        self._stack.close()

    def census(self) -> Census:
        status = admin_pb2.StatusRequest()
        return Census(
            num_at_router=self._admin.Status(status, timeout=RPC_TIMEOUT_S).router.num_active_requests,
            prefill=self._workers[Role.PREFILL].Status(status, timeout=RPC_TIMEOUT_S).workers[0].load,
            decode=self._workers[Role.DECODE].Status(status, timeout=RPC_TIMEOUT_S).workers[0].load,
        )

    def num_used_blocks(self) -> int:
        """Blocks that a request or a transfer holds, on both workers, after a check of all books."""
        reports = [
            admin.CheckIntegrity(admin_pb2.CheckIntegrityRequest(), timeout=RPC_TIMEOUT_S)
            for admin in self._workers.values()
        ]
        return sum(report.num_used_blocks + report.num_quarantined_blocks for report in reports)

    @contextmanager
    def busy(self, stage: Stage, prompt_tokens: int) -> Iterator[None]:
        """Other requests, where a stage needs them: a full decode worker, or a prefill worker with a long prompt."""
        stub = inference_pb2_grpc.InferenceStub(self.router)
        if stage is Stage.QUEUED:
            max_num_seqs = self.census().decode.max_num_seqs
            calls = [stub.Generate(request([900 + number], max_tokens=1500)) for number in range(max_num_seqs)]
            self._wait(lambda now: now.decode.num_running == max_num_seqs)
        elif stage is Stage.RESERVED:
            # Another prompt each time: nothing of it is cached.
            prompt = [random.randrange(300, 1000) for _ in range(3 * prompt_tokens)]
            calls = [stub.Generate(request(prompt, max_tokens=2))]
            self._wait(lambda now: now.prefill.num_running == 1)
        else:
            calls = []
        try:
            yield
        finally:
            for call in calls:
                call.cancel()

    def _wait(self, condition: Callable[[Census], bool]) -> None:
        deadline_s = time.monotonic() + RPC_TIMEOUT_S
        while not condition(self.census()):
            assert time.monotonic() < deadline_s, "the other requests did not begin"
            time.sleep(0.005)

    def _connect(self, address: str) -> grpc.Channel:
        return self._stack.enter_context(grpc.insecure_channel(address))


def is_in(stage: Stage, before: Census, now: Census) -> bool:
    """Whether the one request that came since `before` is in this stage."""
    if now.num_at_router != before.num_at_router + 1:
        return False
    arriving = now.decode.num_reservations > before.decode.num_reservations
    received = now.decode.received_bytes > before.decode.received_bytes
    match stage:
        case Stage.QUEUED:
            return not arriving
        case Stage.RESERVED:
            return arriving and now.prefill.num_waiting > before.prefill.num_waiting
        case Stage.PREFILLING:
            return arriving and now.prefill.num_running > before.prefill.num_running and not received
        case Stage.TRANSFERRING:
            return arriving and received
        case Stage.DECODING:
            return now.decode.num_running > before.decode.num_running


def request(prompt: list[int], **sampling: Any) -> inference_pb2.GenerateRequest:
    message = inference_pb2.GenerateRequest(token_ids=inference_pb2.TokenIds(ids=prompt))
    for name, value in {"ignore_eos": True, **sampling}.items():
        setattr(message.sampling, name, value)
    return message
