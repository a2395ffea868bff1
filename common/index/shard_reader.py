"""A router's view of one shard: whose slot is whose, what a point's value means, and whether the shard answers."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from common.index.client import IndexClient
from common.index.outage_log import OutageLog
from common.index.points import VERSION_FIELD, ShardKeys, WorkerRef, decode_record, decode_value
from common.index.prefix_walk import NOBODY, Holders, holders_of

logger = logging.getLogger(__name__)

MAX_DECODED = 4096  # values remembered
PROBE_INTERVAL_S = 0.1


class ShardReader:
    """Owner: IndexLookup; one event loop.

    Invariant: `_decoded` and `_workers` belong to a slot table as new as each of `_versions`, or newer. Each answer
    carries the version that it was read under, so that a worker that has restarted is cold in the same lookup.
    """

    def __init__(self, client: IndexClient, keys: ShardKeys) -> None:
        self._client = client
        self._keys = keys
        self._versions: set[bytes] = set()
        self._unknown: set[bytes] = set()  # versions of answers that wait for a newer table
        self._refreshing = asyncio.Lock()
        self._workers: dict[int, WorkerRef] = {}  # live slot → worker
        self._slots: dict[WorkerRef, tuple[int, bytes]] = {}  # live worker → slot, owner
        self._records: dict[bytes, tuple[bool, WorkerRef, bytes]] = {}  # of the slot table, decoded
        self._decoded: dict[bytes | None, Holders] = {None: NOBODY}
        self._slow = OutageLog(logger, f"index shard {keys.name}")
        self._failed = False
        self._failed_at = 0.0
        self._probe_at = 0.0

    @property
    def degraded(self) -> bool:
        """The last call failed."""
        return self._failed

    @property
    def degraded_s(self) -> float:
        """Seconds since the first of the calls that failed; 0 while the shard answers."""
        return time.monotonic() - self._failed_at if self._failed else 0.0

    def may_try(self) -> bool:
        """False while the shard is known to be away, but for one call every now and then."""
        now = time.monotonic()
        if self._failed and now < self._probe_at:
            return False
        if self._failed:
            self._probe_at = now + PROBE_INTERVAL_S
        return True

    def failed(self, error: BaseException) -> None:
        if isinstance(error, TimeoutError):  # the client tells of what it could not reach
            self._slow.failed("no answer by the deadline of a lookup")
        now = time.monotonic()
        if not self._failed:
            self._failed_at = now
        self._failed = True
        self._probe_at = now + PROBE_INTERVAL_S

    def succeeded(self) -> None:
        self._slow.succeeded()
        self._failed = False

    async def read(self, keys: Sequence[bytes]) -> list[Holders]:
        """Who holds each of these points: one HMGET. Raises IndexUnavailableError."""
        points = self._keys.points
        version, *values = await self._client.command(points, "HMGET", points, VERSION_FIELD, *keys)
        if version is None:
            return [NOBODY] * len(keys)  # empty, or just flushed
        if version not in self._versions:
            await self._catch_up(version)
        if unknown := set(values).difference(self._decoded):
            self._decode(unknown, values)
        return list(map(self._decoded.__getitem__, values))

    async def speculate(self, worker: WorkerRef, keys: Sequence[bytes], life_ms: int, nonce: bytes) -> bool:
        """True when entered, False where the worker owns no slot. Raises IndexUnavailableError."""
        if worker not in self._slots:
            return False
        slot, owner = self._slots[worker]
        answer = await self._client.call(
            "slipstream_speculate_v2", self._keys.all(slot), slot, owner, life_ms, nonce, *keys
        )
        return bool(answer >= 0)

    async def _catch_up(self, version: bytes) -> None:
        """Reads the slot table once for all answers that wait for it: when many workers come back at once, it changes
        between any two answers. Raises IndexUnavailableError."""
        self._unknown.add(version)
        async with self._refreshing:
            if version not in self._unknown:
                return
            # The table is read after these versions were, so it is as new or newer: at worst it is read once more.
            served, self._unknown = self._unknown, set()
            try:
                await self._refresh()
            except BaseException:
                self._unknown |= served
                raise
            self._versions = served

    async def _refresh(self) -> None:
        records = await self._client.command(self._keys.slots, "HGETALL", self._keys.slots)
        workers: dict[int, WorkerRef] = {}
        slots: dict[WorkerRef, tuple[int, bytes]] = {}
        known = self._records  # of a thousand workers, one has changed
        self._records = {record: known.get(record) or decode_record(record) for record in records.values()}
        for slot_text, record in records.items():
            live, worker, owner = self._records[record]
            if live:
                workers[int(slot_text)] = worker
                slots[worker] = (int(slot_text), owner)
        self._workers, self._slots = workers, slots
        self._decoded = {None: NOBODY}

    def _decode(self, unknown: set[bytes], values: Sequence[bytes]) -> None:
        if len(self._decoded) + len(unknown) > MAX_DECODED:
            self._decoded = {None: NOBODY}
            unknown = set(values).difference(self._decoded)
        for value in unknown:
            entries = {self._workers[slot]: tier for slot, tier in decode_value(value).items() if slot in self._workers}
            self._decoded[value] = holders_of(entries) if entries else NOBODY
