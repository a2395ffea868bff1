"""A worker without an engine: what it tells the index is real."""

from __future__ import annotations

import asyncio
import random
from collections import deque

from benchmarks.index_soak.prompts import SYSTEM_POINTS, Prompts, events
from common.index.client import Argument, IndexClient, IndexUnavailableError
from common.index.membership import Lease, Membership
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher
from common.kv.cache_event import CacheEventKind
from common.request import WorkerId

MAX_TAILS = 10  # conversations held; the oldest is evicted
PROMPT_INTERVAL_S = 4.0
LEASE_S = 10.0


class MortalClient(IndexClient):
    """Says nothing more once it is dead, not even goodbye."""

    dead = False

    async def command(self, key: bytes, *arguments: Argument) -> object:
        if self.dead:
            raise IndexUnavailableError("dead")
        return await super().command(key, *arguments)

    async def call(self, function: str, keys: tuple[bytes, ...], *arguments: Argument) -> object:  # type: ignore[override]
        if self.dead:
            raise IndexUnavailableError("dead")
        return await super().call(function, keys, *arguments)


class FakeWorker:
    """One life of one worker. Owner: the fleet's process."""

    def __init__(self, url: str, space: IndexSpace, worker: WorkerRef, prompts: Prompts) -> None:
        client = MortalClient.from_url(url, max_connections=4)
        assert isinstance(client, MortalClient)
        self._client = client
        self._membership = Membership(client, space)
        self.worker = worker
        self.publisher = IndexPublisher(client, space, worker)
        self._prompts = prompts
        self._rng = random.Random(f"{worker.worker_id} {worker.incarnation}")
        self._held: deque[tuple[int, int]] = deque()
        self._system: set[int] = set()
        self._lease: Lease | None = None
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.publisher.start()
        self._lease = self._membership.register(self.worker, b"x" * 300, LEASE_S)
        for _ in range(MAX_TAILS):
            self.serve_prompt()
        self._serving = asyncio.create_task(self._serve())

    async def stop(self, *, dead: bool) -> None:
        """`dead`: without a word to anybody."""
        assert self._serving is not None and self._lease is not None
        self._client.dead = dead
        self._serving.cancel()
        await self.publisher.stop()
        await self._lease.release()
        await self._client.close()

    def serve_prompt(self) -> None:
        number, tail = self._prompts.pick(self._rng)
        if (number, tail) in self._held:
            return
        if number not in self._system:
            self._system.add(number)
            self.publisher.publish(events(CacheEventKind.STORED, self._prompts.system(number)))
        self._held.append((number, tail))
        self.publisher.publish(events(CacheEventKind.STORED, self._prompts.tail(number, tail), SYSTEM_POINTS))
        if len(self._held) > MAX_TAILS:
            self._evict(*self._held.popleft())

    def _evict(self, number: int, tail: int) -> None:
        self.publisher.publish(events(CacheEventKind.EVICTED, self._prompts.tail(number, tail), SYSTEM_POINTS)[::-1])
        if all(number != other for other, _ in self._held):
            self._system.remove(number)
            self.publisher.publish(events(CacheEventKind.EVICTED, self._prompts.system(number))[::-1])

    async def _serve(self) -> None:
        while True:
            await asyncio.sleep(PROMPT_INTERVAL_S * self._rng.uniform(0.5, 1.5))
            self.serve_prompt()


def worker_ref(number: int, incarnation: int) -> WorkerRef:
    return WorkerRef(WorkerId(f"worker-{number}"), incarnation)
