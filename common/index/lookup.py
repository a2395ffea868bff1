"""A router's side of the prefix index: how deep does each worker hold this prefix? One round trip.

A lookup never fails and never waits longer than its deadline: without an answer the result says so, and the
router goes by load.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from common.index.background import BackgroundTask
from common.index.client import IndexClient, IndexUnavailableError
from common.index.points import IndexSpace, WorkerRef
from common.index.prefix_walk import Holders, PrefixDepth, walk
from common.index.shard_reader import ShardReader
from common.index.sweeper import IndexSweeper

REFRESH_S = 0.5

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    """Depths by worker, those without any left out. `degraded`: some shard did not answer in time."""

    depths: Mapping[WorkerRef, PrefixDepth]
    num_points: int  # asked
    degraded: bool


class IndexLookup:
    """Owner: the router's process; one event loop. `start()` keeps slot tables fresh and sweeps."""

    def __init__(
        self, client: IndexClient, space: IndexSpace, *, deadline_s: float = 0.02, speculation_s: float = 2.0
    ) -> None:
        self._space = space
        self._readers = tuple(ShardReader(client, keys) for keys in space.shards())
        self._sweeper = IndexSweeper(client, space)
        self._deadline_s = deadline_s
        self._speculation_s = speculation_s
        self._task = BackgroundTask()

    @property
    def degraded(self) -> bool:
        """Some shard does not answer now."""
        return self.num_degraded_shards > 0

    @property
    def num_degraded_shards(self) -> int:
        """Of `num_shards`, those that don't answer now."""
        return sum(reader.degraded for reader in self._readers)

    @property
    def degraded_s(self) -> float:
        """Seconds since a shard stopped answering, of those that don't answer now; 0 when all do."""
        return max(reader.degraded_s for reader in self._readers)

    def start(self) -> None:
        self._task.start(self._run(), "index-lookup")

    async def stop(self) -> None:
        """Idempotent."""
        await self._task.stop()

    async def depth(self, keys: Sequence[bytes]) -> LookupResult:
        """`keys`: the points of a prompt (`IndexSpace.point_keys`), shortest prefix first. Never raises."""
        points: Sequence[Holders | None] | None
        if len(self._readers) == 1 and keys:
            reader = self._readers[0]
            points = await self._in_time(reader, lambda: reader.read(keys))
            degraded = points is None
        else:
            filled: list[Holders | None] = [None] * len(keys)
            reads = (self._read(shard, keys, indices, filled) for shard, indices in self._space.places(keys).items())
            degraded = not all(await asyncio.gather(*reads))
            points = filled
        return LookupResult(depths=walk(points or ()), num_points=len(keys), degraded=degraded)

    async def speculate(
        self, worker: WorkerRef, keys: Sequence[bytes], *, first: int = 0, life_s: float | None = None
    ) -> bool:
        """Enters a worker at points that it was just given to compute, so that siblings of the request meet there.

        `keys` are a prompt's points from the one with index `first` on; those before it are left as they are.
        The entries end by themselves after `life_s` (15 s at most); a renewed speculation prolongs them, the
        worker's own entry replaces them. False when some shard did not take them. Never raises.
        """
        life_ms = max(1, round(1000 * (self._speculation_s if life_s is None else life_s)))
        nonce = secrets.token_bytes(8)

        async def tell(reader: ShardReader, chosen: Sequence[bytes]) -> bool:
            return bool(await self._in_time(reader, lambda: reader.speculate(worker, chosen, life_ms, nonce)))

        return all(
            await asyncio.gather(
                *(
                    tell(self._readers[shard], [keys[index] for index in indices])
                    for shard, indices in self._space.places(keys, first).items()
                )
            )
        )

    async def _read(
        self, shard: int, keys: Sequence[bytes], indices: Sequence[int], points: list[Holders | None]
    ) -> bool:
        """Fills in the points of one shard. False when it did not answer in time."""
        reader = self._readers[shard]
        answer = await self._in_time(reader, lambda: reader.read([keys[index] for index in indices]))
        if answer is None:
            return False
        for index, holders in zip(indices, answer, strict=True):
            points[index] = holders
        return True

    async def _in_time(self, reader: ShardReader, action: Callable[[], Awaitable[T]]) -> T | None:
        if not reader.may_try():
            return None
        try:
            async with asyncio.timeout(self._deadline_s):
                answer = await action()
        except (IndexUnavailableError, TimeoutError) as error:
            reader.failed(error)
            return None
        reader.succeeded()
        return answer

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for reader in self._readers:
                group.create_task(self._keep_fresh(reader))
            group.create_task(self._sweeper.run())

    async def _keep_fresh(self, reader: ShardReader) -> None:
        """Connects before the first lookup, notices a loss without one, and a return."""
        while True:
            asked = time.monotonic()
            try:
                await reader.read(())
            except IndexUnavailableError as error:
                reader.failed(error)
            else:
                if time.monotonic() - asked <= self._deadline_s:
                    reader.succeeded()
            await asyncio.sleep(REFRESH_S * random.uniform(0.8, 1.2))
