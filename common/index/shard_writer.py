"""One worker's entries in one shard: what must be there, what still has to be told, and the slot that it owns.

The desired state is kept here, so that a shard that lost it (restarted empty, flushed, failed over) is given
all of it again. Knows nothing of other shards.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from dataclasses import dataclass

from common.index.client import Argument, IndexClient, IndexFullError, IndexUnavailableError
from common.index.outage_log import OutageLog
from common.index.points import ShardKeys, Tier, WorkerRef, encode_owner

logger = logging.getLogger(__name__)

FENCED = -1
FULL = -2
NONCE_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterConfig:
    """Pace of the writes."""

    batch_delay_s: float = 0.01  # seconds that the first event of a batch waits for others
    max_batch_points: int = 128  # points in one call; the server answers nobody else meanwhile
    first_delay_s: float = 1.0  # seconds within which, by chance, it registers first: many workers may start at once
    busy_s: float = 0.01  # a call that takes longer has met a busy server
    pause_per_busy_s: float = 10.0  # seconds of pause for each second that such a call took
    max_pause_s: float = 0.3
    heartbeat_s: float = 1.0  # seconds between signs of life, and checks that nothing was lost
    min_backoff_s: float = 0.05
    max_backoff_s: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    changes: dict[bytes, Tier | None]  # key → tier where it is held, None: evicted
    num_held: int | None  # points that the shard must hold afterwards; None: more changes wait


class ShardWriter:
    """Owner: IndexPublisher; one event loop.

    Invariant: while a slot is owned, the shard's content for it plus `_pending` (and a batch in flight) is
    `_held`. Only the last change of a key counts, and batches are applied in the order of their numbers, so the
    outcome is that of all events in order. `_pending` is bounded: when it outgrows `_held`, the slot is given
    up and everything is told anew.
    """

    def __init__(self, client: IndexClient, keys: ShardKeys, worker: WorkerRef, config: WriterConfig) -> None:
        self._client = client
        self._keys = keys
        self._worker = worker
        self._owner = encode_owner(worker, time.time_ns() // 1000)
        self._config = config
        self._held: dict[bytes, Tier] = {}
        self._pending: dict[bytes, Tier | None] = {}
        self._slot: int | None = None
        self._sequence = 0
        self._num_in_flight = 0
        self._changed = asyncio.Event()
        self._took_s = 0.0  # the last call with changes
        self._full = OutageLog(logger, f"index shard {keys.name}")
        self.connected = False
        self._away_since = time.monotonic()
        self.fenced = False
        self.num_registrations = 0
        self.num_refused = 0  # points that a full server did not take

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, key: bytes) -> bool:
        return key in self._held

    @property
    def num_pending(self) -> int:
        """Changes that the server has not confirmed."""
        if self.fenced:
            return 0
        return len(self._held) if self._slot is None else len(self._pending) + self._num_in_flight

    @property
    def away_s(self) -> float:
        """Seconds that the shard has not answered for, counted from the start before it first did; 0 while it does."""
        return 0.0 if self.connected else time.monotonic() - self._away_since

    def store(self, key: bytes, tier: Tier) -> None:
        if self._held.get(key) != tier:
            self._held[key] = tier
            self._change(key, tier)

    def evict(self, key: bytes) -> None:
        if self._held.pop(key, None) is not None:
            self._change(key, None)

    def forget_all(self) -> None:
        """Everything was evicted: a new slot is quicker than telling it key by key, and cold at once."""
        if self._held:
            self._held.clear()
            self._give_up_slot()

    async def run(self) -> None:
        """Until cancelled, or fenced by a later start of the same worker."""
        backoff_s = self._config.min_backoff_s
        await asyncio.sleep(random.uniform(0.0, self._config.first_delay_s))
        while not self.fenced:
            try:
                await self._step()
                self.connected = True
                backoff_s = self._config.min_backoff_s
            except IndexUnavailableError:
                if self.connected:
                    self._away_since = time.monotonic()
                self.connected = False
                await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
                backoff_s = min(2 * backoff_s, self._config.max_backoff_s)
                continue
            await self._wait()
        logger.warning("worker %s was started again elsewhere: its index entries are no longer ours", self._worker)

    async def release(self, timeout_s: float) -> None:
        """After `run()` has ended: takes the worker out, cold at once, then its entries, as many as time allows."""
        slot, self._slot = self._slot, None
        if slot is None:
            return
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._call("slipstream_release_v2", slot, self._owner, _nonce())
                while answer != 0:
                    answer = await self._call("slipstream_clear_v2", slot, self._config.max_batch_points, 0)
        except (IndexUnavailableError, TimeoutError) as error:
            logger.warning("entries of %s were left to the sweepers: %s", self._worker, error or "no time")

    async def _call(self, function: str, slot: int, *arguments: Argument) -> int:
        return int(await self._client.call(function, self._keys.all(slot), slot, *arguments))

    def _change(self, key: bytes, tier: Tier | None) -> None:
        if self._slot is None:
            return  # registering tells everything
        self._pending[key] = tier
        if len(self._pending) > 2 * len(self._held) + 16 * self._config.max_batch_points:
            self._give_up_slot()
        self._changed.set()

    def _give_up_slot(self) -> None:
        self._slot = None
        self._pending.clear()
        self._changed.set()

    async def _wait(self) -> None:
        """Until there is something to tell, or a heartbeat is due."""
        if self._slot is None and not self.fenced:
            return
        if not self._pending:  # `_changed` does not tell of what the last batch had no room for
            try:
                async with asyncio.timeout(self._config.heartbeat_s * random.uniform(0.8, 1.0)):
                    await self._changed.wait()
            except TimeoutError:
                return
        if self._slot is None:
            return
        if len(self._pending) < self._config.max_batch_points:
            await asyncio.sleep(self._config.batch_delay_s)
        await asyncio.sleep(self._pause_s())

    def _pause_s(self) -> float:
        """A busy server is given time for others: a hundred workers that come back at once tell all they hold, and
        whoever asks meanwhile would wait for every one of them."""
        config = self._config
        if self._took_s <= config.busy_s:
            return 0.0
        return min(config.pause_per_busy_s * self._took_s, config.max_pause_s) * random.uniform(0.5, 1.0)

    async def _step(self) -> None:
        """Registers where needed, then tells one batch; an empty one is the heartbeat."""
        self._changed.clear()
        if self._slot is None:
            await self._register()
            if self._slot is None:
                return
        slot = self._slot
        batch = self._next_batch()
        self._num_in_flight = len(batch.changes)
        try:
            num_held = await self._publish(slot, batch)
        except IndexFullError:
            self._put_back(slot, batch)
            await self._withdraw_only(slot)
            return
        except BaseException:
            self._put_back(slot, batch)
            raise
        finally:
            self._num_in_flight = 0
        if self._slot != slot:
            return  # given up while the call was under way
        if num_held == FENCED:
            logger.info("index shard %s does not know worker %s", self._keys.name, self._worker)
            self._give_up_slot()
        elif batch.num_held is not None and num_held != batch.num_held:
            logger.warning("index shard lost entries of %s: %s of %s", self._worker, num_held, batch.num_held)
            self._give_up_slot()

    async def _register(self) -> None:
        resume = 1 if self.num_registrations else 0
        worker_id = self._worker.worker_id.encode()
        answer = await self._client.call(
            "slipstream_register_v2", self._keys.all(), worker_id, self._owner, resume, _nonce()
        )
        if answer == FENCED:
            self.fenced = True
            return
        if answer == FULL:
            self._full.failed("all worker slots are taken")
            raise IndexUnavailableError("all worker slots are taken")
        self._full.succeeded()
        self.num_registrations += 1
        self._slot = int(answer)
        self._sequence = 0
        self._pending = dict(self._held)

    def _next_batch(self) -> _Batch:
        limit = self._config.max_batch_points
        if len(self._pending) <= limit:
            changes, self._pending = self._pending, {}
            return _Batch(changes=changes, num_held=len(self._held))
        changes = {key: self._pending[key] for key, _ in zip(self._pending, range(limit), strict=False)}
        for key in changes:
            del self._pending[key]
        return _Batch(changes=changes, num_held=None)

    def _put_back(self, slot: int, batch: _Batch) -> None:
        if self._slot == slot:
            self._pending = {**batch.changes, **self._pending}

    async def _publish(self, slot: int, batch: _Batch, function: str = "slipstream_publish_v2") -> int:
        by_tier: tuple[list[bytes], ...] = ([], [], [])
        evicted: list[bytes] = []
        for key, tier in batch.changes.items():
            (evicted if tier is None else by_tier[tier]).append(key)
        if batch.changes:
            self._sequence += 1
        counts = (*(len(keys) for keys in by_tier), len(evicted))
        stored = [key for keys in by_tier for key in keys]
        if not stored:
            function = "slipstream_withdraw_v2"  # allowed on a full server
        sequence = self._sequence if batch.changes else 0
        asked_s = time.monotonic()
        answer = await self._call(function, slot, self._owner, sequence, *counts, *stored, *evicted)
        if batch.changes:
            self._took_s = time.monotonic() - asked_s
        return answer

    async def _withdraw_only(self, slot: int) -> None:
        """The server is full: what waits to be stored is dropped, what was evicted is told."""
        changes, self._pending = self._pending, {}
        for key, tier in changes.items():
            if tier is not None and self._held.pop(key, None) is not None:
                self.num_refused += 1
        # A dropped key may be there in another tier.
        evicted: dict[bytes, Tier | None] = dict.fromkeys(changes)
        batch = _Batch(changes=evicted, num_held=None)
        try:
            await self._publish(slot, batch)
        except BaseException:
            self._put_back(slot, batch)
            raise


def _nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)
