"""A process with some hundred fake workers: they publish, evict, die and return. Measures the lag of writes."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

from benchmarks.index_soak.fake_worker import FakeWorker, worker_ref
from benchmarks.index_soak.prompts import Prompts, events
from common.index.client import IndexClient
from common.index.points import IndexSpace
from common.kv.cache_event import CacheEventKind

PROBE_INTERVAL_S = 0.1
POLL_S = 0.002
CHURN_INTERVAL_S = 2.0
RETURN_S = 5.0


class Kill(NamedTuple):
    """Order: so many workers die at once, and return after `return_s`."""

    num_workers: int
    return_s: float


class WriteLag(NamedTuple):
    """News: seconds from an event until the server had it."""

    stored_s: float
    evicted_s: float


def run_fleet(pipe: Connection, url: str, space: IndexSpace, first: int, num_workers: int) -> None:
    """Until it is killed."""
    logging.disable(logging.CRITICAL)
    asyncio.run(_Fleet(pipe, url, space, first, num_workers).run())


class _Fleet:
    def __init__(self, pipe: Connection, url: str, space: IndexSpace, first: int, num_workers: int) -> None:
        self._pipe = pipe
        self._url = url
        self._space = space
        self._numbers = range(first, first + num_workers)
        self._rng = random.Random(first)
        self._prompts = Prompts()
        self._client = IndexClient.from_url(url, timeout_s=30.0)
        self._workers: dict[int, FakeWorker] = {}
        self._incarnation = time.time_ns()
        self._group = asyncio.TaskGroup()

    async def run(self) -> None:
        for number in self._numbers:
            self._start(number)
            await asyncio.sleep(0.005)
        for worker in self._workers.values():
            while worker.publisher.stats().num_pending:
                await asyncio.sleep(0.01)
        self._pipe.send(None)  # filled
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._take_order)
        async with self._group:
            self._group.create_task(self._probe())
            self._group.create_task(self._churn())

    def _take_order(self) -> None:
        try:
            order = self._pipe.recv()
        except EOFError:
            os._exit(0)  # nobody waits for a thousand goodbyes
        assert isinstance(order, Kill)
        for number in self._rng.sample(sorted(self._workers), order.num_workers):
            self._group.create_task(self._restart(number, dead=True, return_s=order.return_s))

    def _start(self, number: int) -> None:
        self._incarnation += 1
        worker = FakeWorker(self._url, self._space, worker_ref(number, self._incarnation), self._prompts)
        worker.start()
        self._workers[number] = worker

    async def _restart(self, number: int, *, dead: bool, return_s: float) -> None:
        await self._workers.pop(number).stop(dead=dead)
        await asyncio.sleep(return_s)
        self._start(number)

    async def _churn(self) -> None:
        """Now and then a worker is restarted, every other time after a crash."""
        while True:
            await asyncio.sleep(CHURN_INTERVAL_S * self._rng.uniform(0.5, 1.5))
            number = self._rng.choice(sorted(self._workers))
            self._group.create_task(self._restart(number, dead=self._rng.random() < 0.5, return_s=RETURN_S))

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_INTERVAL_S * self._rng.uniform(0.5, 1.5))
            number = self._rng.choice(sorted(self._workers))
            worker = self._workers[number]
            key = self._rng.randbytes(16)
            lags = []
            for kind in (CacheEventKind.STORED, CacheEventKind.EVICTED):
                worker.publisher.publish(events(kind, [key]))
                lags.append(await self._seconds_until(key, there=kind is CacheEventKind.STORED))
            if self._workers.get(number) is worker:
                self._pipe.send(WriteLag(*lags))

    async def _seconds_until(self, key: bytes, *, there: bool) -> float:
        points = self._space.shards()[self._space.shard_of(key, 0)].points
        started = time.monotonic()
        while time.monotonic() < started + 10.0:
            if (await self._client.command(points, "HGET", points, key) is not None) == there:
                break
            await asyncio.sleep(POLL_S)
        return time.monotonic() - started
