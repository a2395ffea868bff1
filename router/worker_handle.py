"""One worker of the fleet as this router holds it: registration, channel, stream, load and own charges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc

from common.config import Role
from common.net.server import open_channel
from protos import admin_pb2_grpc, worker_pb2, worker_pb2_grpc
from router.attachment import Attachment
from router.worker_info import WorkerInfo, WorkerLoad

# Decodes a registration; raises IncompatibleWorkerError for one that does not fit the fleet.
Admit = Callable[[worker_pb2.WorkerRegistration], WorkerInfo]


class WorkerHandle:
    """Lives on the event loop, from the first registration until the worker is removed.

    Charges are this router's optimistic account: work given to the worker that its reports may not show yet.
    """

    def __init__(self, info: WorkerInfo, router_id: str, on_change: asyncio.Event, admit: Admit) -> None:
        self.info = info
        self.load = WorkerLoad()
        self.load_report = worker_pb2.LoadReport()
        self.num_charged_tokens = 0
        self.num_charged_requests = 0
        self.since_s = time.monotonic()
        self._changed = on_change
        self._admit = admit
        self.channel: grpc.aio.Channel = open_channel(info.address)
        self.attachment = Attachment(
            info,
            self.channel,
            router_id,
            on_hello=self._on_hello,
            on_load=self._on_load,
            on_lost=on_change.set,
        )
        self.decode_stub = worker_pb2_grpc.DecodeWorkerStub(self.channel)
        self.admin_stub = admin_pb2_grpc.AdminStub(self.channel)
        self._task = asyncio.create_task(self.attachment.run(), name=f"attach {info.worker_id}")

    @property
    def usable(self) -> bool:
        """Its stream is up and it takes work."""
        return self.attachment.connected and not self.info.draining

    def can(self, role: Role) -> bool:
        """Whether it can take a prefill or a decode leg."""
        return self.info.role is Role.BOTH or self.info.role is role

    def charge(self, num_tokens: int) -> None:
        self.num_charged_tokens += num_tokens
        self.num_charged_requests += 1

    def discharge(self, num_tokens: int) -> None:
        self.num_charged_tokens -= num_tokens
        self.num_charged_requests -= 1

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.channel.close()

    def _on_hello(self, registration: worker_pb2.WorkerRegistration) -> None:
        # A worker that came back under its old address is another incarnation with an empty cache.
        self.info = self._admit(registration)
        self._changed.set()

    def _on_load(self, report: worker_pb2.LoadReport) -> None:
        self.load_report = report
        self.load = WorkerLoad.from_wire(report)
        self._changed.set()
