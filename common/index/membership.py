"""Who is in the fleet: workers hold leases in the index server, routers poll the set that changed.

Payloads are opaque bytes (a serialised registration). Losing the server only keeps newcomers out.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import struct
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from common.index.background import BackgroundTask
from common.index.client import IndexClient, IndexUnavailableError
from common.index.points import IndexSpace, WorkerRef
from common.request import WorkerId

logger = logging.getLogger(__name__)

FENCED = -1
EPOCH_BYTES = 8  # of the version: changes when the server has lost everything


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One registered worker."""

    worker: WorkerRef
    payload: bytes


class Membership:
    """Makes leases (a worker's side) and watches (a router's side). One event loop."""

    def __init__(self, client: IndexClient, space: IndexSpace) -> None:
        self._client = client
        prefix = space.membership_prefix()
        self._keys = (prefix + b"members", prefix + b"leases", prefix + b"version")

    def register(self, worker: WorkerRef, payload: bytes, lease_s: float) -> Lease:
        """Registers in the background, takes the place of any earlier life of the worker, and renews."""
        lease = Lease(self._client, self._keys, worker, payload, lease_s)
        lease.start()
        return lease

    async def watch(self, *, poll_s: float = 0.5, grace_s: float = 10.0) -> AsyncIterator[Mapping[WorkerId, Member]]:
        """The current set at first, then again whenever it has changed. Never raises for the network.

        While the server does not answer, nothing is told. When it comes back empty, members that have not yet
        renewed are kept for `grace_s` (the fleet's lease is a good value).
        """
        watch = _Watch(grace_s)
        while True:
            try:
                answer = await self._client.call(
                    "slipstream_members_v2", self._keys, watch.version, secrets.token_bytes(8)
                )
            except IndexUnavailableError:
                pass  # the last known workers stay
            else:
                if watch.update(answer, time.monotonic()):
                    yield watch.members()
            await asyncio.sleep(poll_s * random.uniform(0.8, 1.2))


class Lease:
    """A worker's place in the fleet. Renewed three times per lease; `release()` ends it."""

    def __init__(
        self, client: IndexClient, keys: tuple[bytes, ...], worker: WorkerRef, payload: bytes, lease_s: float
    ) -> None:
        self._client = client
        self._keys = keys
        self._worker_id = worker.worker_id.encode()
        self._incarnation = struct.pack(">Q", worker.incarnation)
        self._payload = payload
        self._lease_s = lease_s
        self._changed = asyncio.Event()
        self._is_registered = False
        self._task = BackgroundTask()
        self.superseded = False  # a later life of this worker registered

    def start(self) -> None:
        self._task.start(self._renew(), "membership-lease")

    def update(self, payload: bytes) -> None:
        """Tells a new payload at once (a new state or role)."""
        self._payload = payload
        self._changed.set()

    async def release(self) -> None:
        """Leaves the fleet, if the server answers; otherwise the lease runs out. Idempotent."""
        if not await self._task.stop():
            return
        try:
            async with asyncio.timeout(2.0):
                await self._client.call(
                    "slipstream_leave_v2", self._keys, self._worker_id, self._incarnation, secrets.token_bytes(8)
                )
        except (IndexUnavailableError, TimeoutError) as error:
            logger.warning("the registration was left to run out: %s", error or "no answer")

    async def _renew(self) -> None:
        while True:
            self._changed.clear()
            pause_s = self._lease_s / 3
            try:
                answer = await self._client.call(
                    "slipstream_join_v2",
                    self._keys,
                    self._worker_id,
                    self._incarnation,
                    round(self._lease_s * 1000),
                    0 if self._is_registered else 1,
                    secrets.token_bytes(8),
                    self._payload,
                )
            except IndexUnavailableError:
                pause_s = min(pause_s, 0.5)
            else:
                if answer == FENCED:
                    self.superseded = True
                    logger.warning("worker %s was started again elsewhere", self._worker_id.decode())
                    return
                self._is_registered = True
            try:
                async with asyncio.timeout(pause_s * random.uniform(0.8, 1.0)):
                    await self._changed.wait()
            except TimeoutError:
                continue


class _Watch:
    """What one watcher knows: the server's set, and members that a server which lost everything may get again."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self.version = b"?"  # no version that a server gives
        self._present: dict[WorkerId, Member] = {}
        self._missing: dict[WorkerId, Member] = {}
        self._missing_until = 0.0

    def members(self) -> Mapping[WorkerId, Member]:
        return {**self._missing, **self._present}

    def update(self, answer: list[bytes], now: float) -> bool:
        """Takes the server's answer. True when the set has changed."""
        first = self.version == b"?"
        before = self.members()
        version, *fields = answer
        if version != self.version:
            present = _decode_members(fields)
            if version[:EPOCH_BYTES] != self.version[:EPOCH_BYTES] and self._present:
                self._missing = {**self._missing, **self._present}
                self._missing_until = now + self._grace_s
            self.version, self._present = version, present
        for worker_id in self._present:
            self._missing.pop(worker_id, None)
        if self._missing and now >= self._missing_until:
            self._missing.clear()
        return first or self.members() != before


def _decode_members(fields: list[bytes]) -> dict[WorkerId, Member]:
    members = {}
    for worker_id, record in zip(fields[::2], fields[1::2], strict=True):
        (incarnation,) = struct.unpack_from(">Q", record)
        worker = WorkerRef(WorkerId(worker_id.decode()), incarnation)
        members[worker.worker_id] = Member(worker=worker, payload=record[8:])
    return members
