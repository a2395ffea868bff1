"""One worker of the fleet as this router holds it: registration, channel, stream, load and own charges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc

from common.config import Role
from common.net.server import open_channel
from common.net.tls import TlsIdentity
from protos import admin_pb2_grpc, worker_pb2, worker_pb2_grpc
from router.attachment import Attachment
from router.planning.roster import Roster
from router.planning.worker_account import WorkerAccount
from router.worker_info import WorkerInfo, WorkerLoad

# Decodes a registration; raises IncompatibleWorkerError for one that does not fit the fleet.
Admit = Callable[[worker_pb2.WorkerRegistration], WorkerInfo]


class WorkerHandle:
    """Lives on the event loop, from the first registration until the worker is removed.

    Its account in the roster follows: what the stream tells, and whether it is up.
    """

    def __init__(
        self,
        info: WorkerInfo,
        router_id: str,
        roster: Roster,
        on_change: asyncio.Event,
        admit: Admit,
        tls: TlsIdentity | None = None,
    ) -> None:
        self._roster = roster
        self.account = self._open_account(info)
        self.load_report = worker_pb2.LoadReport()
        self.since_s = time.monotonic()
        self.num_losses = 0  # of its stream
        self._changed = on_change
        self._admit = admit
        self.channel: grpc.aio.Channel = open_channel(info.address, tls)
        self.attachment = Attachment(
            info,
            self.channel,
            router_id,
            on_hello=self._on_hello,
            on_load=self.take_load,
            on_lost=self._on_lost,
            on_doubt=self._on_doubt,
        )
        self.decode_stub = worker_pb2_grpc.DecodeWorkerStub(self.channel)
        self.admin_stub = admin_pb2_grpc.AdminStub(self.channel)
        self._task = asyncio.create_task(self.attachment.run(), name=f"attach {info.worker_id}")

    @property
    def info(self) -> WorkerInfo:
        return self.account.info

    @info.setter
    def info(self, info: WorkerInfo) -> None:
        self.account.info = info
        self._roster.update(self.account)

    @property
    def usable(self) -> bool:
        """Its stream is up and it takes work."""
        return self.account.usable

    @property
    def answers(self) -> bool:
        """Whether the last probe through it came back."""
        return self.account.answers

    @answers.setter
    def answers(self, answers: bool) -> None:
        self.account.answers = answers
        if self._is_current:
            self._roster.update(self.account)
        self._changed.set()

    def can(self, role: Role) -> bool:
        """Whether it can take a prefill or a decode leg."""
        return self.account.can(role)

    def take_load(self, report: worker_pb2.LoadReport) -> None:
        """A load report, by the stream or with an answer."""
        self.load_report = report
        self.account.take_report(WorkerLoad.from_wire(report), time.monotonic())
        self._changed.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._is_current:
            self._roster.remove(self.info.worker_id)
        await self.channel.close()

    def _on_hello(self, registration: worker_pb2.WorkerRegistration) -> None:
        info = self._admit(registration)
        if info.incarnation != self.info.incarnation:
            # It came back under its old address, with an empty cache and nothing to do.
            self.account = self._open_account(info)
        self.account.info = info
        self.account.available = True
        self.account.doubtful = False
        self.account.answers = True  # a probe that failed for want of a stream says nothing of the worker
        self._roster.update(self.account)
        self._changed.set()

    def _on_lost(self) -> None:
        self.num_losses += 1
        self.account.available = False
        self.account.reset()
        if self._is_current:
            self._roster.update(self.account)
        self._changed.set()

    def _on_doubt(self, doubtful: bool) -> None:
        self.account.doubtful = doubtful
        if self._is_current:
            self._roster.update(self.account)
        self._changed.set()

    @property
    def _is_current(self) -> bool:
        """Whether no later life of the worker has taken this one's place."""
        return self._roster.find(self.info.worker_id) is self.account

    def _open_account(self, info: WorkerInfo) -> WorkerAccount:
        now_s = time.monotonic()
        account = WorkerAccount(info, work_s=self._roster.mean_work_s(info.role, now_s), now_s=now_s)
        self._roster.update(account)
        return account
