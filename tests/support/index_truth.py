"""What workers really hold beside what the index claims, over a real server."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.points import IndexSpace, WorkerRef
from common.index.prefix_walk import PrefixDepth
from common.index.publisher import IndexPublisher
from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEventKind
from tests.support.valkey import STRIDE, cleared, eventually, first_points, point_keys, settled, worker_ref

NUM_KEYS = 12
# As docs/index.md states them.
CLAIM_BOUND_S = 1.0  # of a point that a live worker does not hold
SPECULATION_BOUND_S = 1.0  # after its end
RETURN_BOUND_S = 4.0  # of an earlier life that still runs, after the server has lost everything

MakePublisher = Callable[[IndexClient, IndexSpace, WorkerRef], IndexPublisher]


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A worker's slots, to write late with."""

    slots: dict[int, tuple[int, bytes]]  # shard → slot, owner


class IndexTruth:
    """Owner: a test; one event loop. All points are the first of their prompts, so that each is claimed by itself."""

    def __init__(self, url: str, names: Sequence[str] = "ab", make: MakePublisher = IndexPublisher) -> None:
        self._client = IndexClient.from_url(url, timeout_s=0.5)
        self._space = IndexSpace(namespace=uuid.uuid4().hex, index_stride=STRIDE, num_shards=3)
        self._lookup = IndexLookup(self._client, self._space, deadline_s=0.5)
        self._make = make
        self._incarnation = 0
        self._publishers: dict[str, IndexPublisher] = {}
        self._refs: dict[str, WorkerRef] = {}
        self._past: list[IndexPublisher] = []
        self._past_lives: list[Life] = []
        self._held_until: dict[tuple[WorkerRef, bytes], float] = {}
        self._speculated_until: dict[tuple[WorkerRef, bytes], float] = {}
        self._replaced_at: dict[WorkerRef, float] = {}
        self._lost_at = -math.inf
        self._names = names
        self.keys = point_keys(NUM_KEYS)

    async def start(self) -> None:
        self._lookup.start()
        for name in self._names:
            self._start(name)
        await settled(*self._publishers.values())

    async def stop(self) -> None:
        await asyncio.gather(*(publisher.stop() for publisher in (*self._publishers.values(), *self._past)))
        await self._lookup.stop()
        await self._client.close()

    def store(self, name: str, keys: Sequence[BlockKey]) -> None:
        self._publishers[name].publish(first_points(CacheEventKind.STORED, keys))
        self._held_until.update({(self._refs[name], key): math.inf for key in keys})

    def evict(self, name: str, keys: Sequence[BlockKey]) -> None:
        self._publishers[name].publish(first_points(CacheEventKind.EVICTED, keys))
        self._forget(name, keys)

    def clear(self, name: str) -> None:
        self._publishers[name].publish(cleared())
        self._forget(name, self.keys)

    async def restart(self, name: str, *, clean: bool) -> None:
        """After a crash, the earlier life does not know that it is over, and may go on writing."""
        old, old_ref = self._publishers[name], self._refs[name]
        if clean:
            await old.stop()
        else:
            self._past.append(old)
            self._past_lives.append(await self._life(old_ref))
        self._start(name)
        await settled(self._publishers[name])
        self._replaced_at[old_ref] = time.monotonic()

    async def write_late(self, keys: Sequence[BlockKey]) -> None:
        """What earlier lives had still under way arrives."""
        for publisher in self._past:
            publisher.publish(first_points(CacheEventKind.STORED, keys))
        for life in self._past_lives:
            for shard, (slot, owner) in life.slots.items():
                some = [key for key in keys if self._space.shard_of(key, 0) == shard]
                names = self._space.shards()[shard].all(slot)
                await self._client.call("slipstream_publish_v2", names, slot, owner, 1 << 40, len(some), 0, 0, 0, *some)

    async def speculate(self, name: str, keys: Sequence[BlockKey], life_s: float) -> None:
        await self._lookup.speculate(self._refs[name], keys, life_s=life_s)
        until = time.monotonic() + life_s
        for key in keys:
            place = self._refs[name], key
            self._speculated_until[place] = max(until, self._speculated_until.get(place, -math.inf))

    def server_lost_everything(self) -> None:
        self._lost_at = time.monotonic()

    async def check(self) -> None:
        """Raises AssertionError for a claim that is not true, nor was within its bound."""
        asked = time.monotonic()
        results = await asyncio.gather(*(self._lookup.depth([key]) for key in self.keys))
        for key, result in zip(self.keys, results, strict=True):
            for worker, depth in result.depths.items():
                self._check(worker, key, depth, asked)

    async def check_in_the_end(self) -> None:
        """With nothing more going on, all claims are true, and all that is true is claimed."""
        await asyncio.sleep(CLAIM_BOUND_S)
        await self.check()
        await eventually(self._is_complete, timeout_s=10.0)
        await self.check()

    def _start(self, name: str) -> None:
        self._incarnation += 1
        self._refs[name] = worker_ref(name, self._incarnation)
        self._publishers[name] = self._make(self._client, self._space, self._refs[name])
        self._publishers[name].start()

    def _forget(self, name: str, keys: Sequence[BlockKey]) -> None:
        for key in keys:
            if self._held_until.get((self._refs[name], key)) == math.inf:
                self._held_until[self._refs[name], key] = time.monotonic()

    async def _life(self, worker: WorkerRef) -> Life:
        slots: dict[int, tuple[int, bytes]] = {}
        for shard, names in enumerate(self._space.shards()):
            slot = await self._client.command(names.points, "HGET", names.prefix + b"workers", worker.worker_id)
            if slot is not None:
                record = await self._client.command(names.points, "HGET", names.slots, slot)
                slots[shard] = int(slot), record[1:]
        return Life(slots=slots)

    def _check(self, worker: WorkerRef, key: bytes, depth: PrefixDepth, asked: float) -> None:
        returned = asked < self._lost_at + RETURN_BOUND_S
        if worker in self._replaced_at and self._replaced_at[worker] < asked:
            assert returned, f"an earlier life of {worker.worker_id} is claimed"
        if returned and self._refs[worker.worker_id] != worker:
            return  # an earlier life that has not heard of its end
        if depth.disk_points:
            since = self._held_until.get((worker, key), -math.inf)
            assert since >= asked - CLAIM_BOUND_S, f"{worker} is claimed, which let go {asked - since:.2f} s ago"
        else:
            since = self._speculated_until.get((worker, key), -math.inf)
            assert since >= asked - SPECULATION_BOUND_S, f"{worker} is expected, until {asked - since:.2f} s ago"

    async def _is_complete(self) -> bool:
        claimed = set()
        for key in self.keys:
            for worker, depth in (await self._lookup.depth([key])).depths.items():
                if depth.disk_points:
                    claimed.add((worker, key))
        lives = set(self._refs.values())
        return claimed == {
            place for place, until in self._held_until.items() if until == math.inf and place[0] in lives
        }
