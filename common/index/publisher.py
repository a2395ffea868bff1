"""A worker's side of the prefix index: cache events in, entries in every shard out.

Fed on the worker's event loop. What the engine holds is never slowed down by the index: events are only noted
here, and a server that is away costs hit rate, nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from common.index.background import BackgroundTask
from common.index.client import IndexClient
from common.index.points import KEY_BYTES, IndexSpace, Tier, WorkerRef
from common.index.shard_writer import ShardWriter, WriterConfig
from common.index.sweeper import IndexSweeper
from common.kv.cache_event import CacheEvent, CacheEventKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """Limits of one worker's part of the index."""

    max_points: int = 262_144  # per worker: at most 21 MB of the server, 16 M tokens at a stride of 64
    stop_timeout_s: float = 2.0
    writer: WriterConfig = field(default_factory=WriterConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherStats:
    """Counters since the start, and the state now."""

    num_points: int  # held and published, or about to be
    num_pending: int  # changes that the server has not confirmed
    num_dropped: int  # points not published: limit of this worker, or memory of the server
    num_registrations: int  # over all shards; above num_shards: something was lost and told again
    connected: bool  # every shard answers
    num_away_shards: int  # shards that don't, or have not yet
    away_s: float  # seconds since the first of these stopped answering; 0 when all answer
    fenced: bool  # a later start of this worker took its place


class IndexPublisher:
    """Owner: the worker's process; one event loop. `publish()` never blocks and never raises for the network."""

    def __init__(
        self, client: IndexClient, space: IndexSpace, worker: WorkerRef, config: PublisherConfig | None = None
    ) -> None:
        self._client = client
        self._space = space
        self._config = config or PublisherConfig()
        self._writers = tuple(ShardWriter(client, keys, worker, self._config.writer) for keys in space.shards())
        self._sweeper = IndexSweeper(client, space)
        self._task = BackgroundTask()
        self._num_dropped = 0

    def start(self) -> None:
        """Registers and writes in the background; returns at once, whether or not the server is there."""
        self._task.start(self._run(), "index-publisher")

    async def stop(self) -> None:
        """Takes the worker out of the index, within the time limit, if the server answers. Idempotent."""
        if not await self._task.stop():
            return
        async with asyncio.TaskGroup() as group:
            for writer in self._writers:
                group.create_task(writer.release(self._config.stop_timeout_s))

    def publish(self, events: Iterable[CacheEvent], tier: Tier = Tier.DEVICE) -> None:
        """Notes events in their order. Call it on the event loop that `start()` was called on."""
        num_points = len(self)
        for event in events:
            if event.kind is CacheEventKind.CLEARED:
                for writer in self._writers:
                    writer.forget_all()
                num_points = 0
                continue
            if not self._space.is_point(event.num_tokens):
                continue
            assert len(event.key) == KEY_BYTES
            writer = self._writers[self._space.shard_of(event.key, event.num_tokens // self._space.index_stride - 1)]
            held = event.key in writer
            if event.kind is CacheEventKind.EVICTED:
                writer.evict(event.key)
                num_points -= held
            elif held or num_points < self._config.max_points:
                writer.store(event.key, tier)
                num_points += not held
            else:
                self._num_dropped += 1

    def __len__(self) -> int:
        """Points held."""
        return sum(len(writer) for writer in self._writers)

    def stats(self) -> PublisherStats:
        return PublisherStats(
            num_points=len(self),
            num_pending=sum(writer.num_pending for writer in self._writers),
            num_dropped=self._num_dropped + sum(writer.num_refused for writer in self._writers),
            num_registrations=sum(writer.num_registrations for writer in self._writers),
            connected=all(writer.connected for writer in self._writers),
            num_away_shards=sum(not writer.connected for writer in self._writers),
            away_s=max(writer.away_s for writer in self._writers),
            fenced=any(writer.fenced for writer in self._writers),
        )

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for writer in self._writers:
                group.create_task(writer.run())
            group.create_task(self._sweeper.run())
