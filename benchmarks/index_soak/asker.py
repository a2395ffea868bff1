"""A process that asks the index as a router does, and notes how long each answer took."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import uvloop

from benchmarks.index_soak.core_wait import CoreWait
from benchmarks.index_soak.prompts import Prompts
from common.heap import freeze_loaded
from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.membership import Membership
from common.index.points import IndexSpace

LOOKUPS_PER_S = 60.0
DEADLINE_S = 1.0  # far over the routers' 20 ms, to see how long it takes
SPECULATION_SHARE = 0.2


class Lookup(NamedTuple):
    """One lookup, in seconds."""

    began: float
    took: float
    waited: float  # for a core, the server and this process together
    control: float  # as many keys asked, at the same time, of a server with nothing else to do


class Lookups(NamedTuple):
    """News: lookups since the last ones, and what is known now."""

    times: list[Lookup]
    num_hits: int
    num_degraded: int


def run_asker(pipe: Connection, url: str, server_pid: int, twin_url: str, space: IndexSpace, seed: int) -> None:
    """Until it is killed."""
    logging.disable(logging.CRITICAL)
    uvloop.run(_Asker(pipe, url, server_pid, twin_url, space, seed).run())


class _Asker:
    def __init__(
        self, pipe: Connection, url: str, server_pid: int, twin_url: str, space: IndexSpace, seed: int
    ) -> None:
        self._twin = IndexClient.from_url(twin_url, timeout_s=30.0)
        self._pipe = pipe
        self._waits = (CoreWait(server_pid), CoreWait(os.getpid()))
        self._rng = random.Random(seed)
        self._prompts = Prompts()
        client = IndexClient.from_url(url)
        self._lookup = IndexLookup(client, space, deadline_s=DEADLINE_S)
        self._membership = Membership(client, space)
        self._clear()

    async def run(self) -> None:
        self._lookup.start()
        freeze_loaded()  # as routers do
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            group.create_task(self._tell())
            while True:
                await asyncio.sleep(self._rng.expovariate(LOOKUPS_PER_S))
                group.create_task(self._ask())

    async def _ask(self) -> None:
        number, tail = self._prompts.pick(self._rng)
        keys = self._prompts.system(number) + self._prompts.tail(number, tail)
        waited, began = self._waited(), time.monotonic()
        asking = asyncio.create_task(self._ask_twin(keys))
        result = await self._lookup.depth(keys)
        took = time.monotonic() - began
        waited = self._waited() - waited
        self._times.append(Lookup(began, took, waited, await asking))
        self._num_hits += bool(result.depths)
        self._num_degraded += result.degraded
        if result.depths and self._rng.random() < SPECULATION_SHARE:
            await self._lookup.speculate(self._rng.choice(list(result.depths)), keys)

    async def _ask_twin(self, keys: list[bytes]) -> float:
        asked = time.monotonic()
        await self._twin.command(b"points", "HMGET", b"points", *keys)
        return time.monotonic() - asked

    def _waited(self) -> float:
        return sum(wait.seconds() for wait in self._waits)

    async def _watch(self) -> None:
        """As routers do: it costs the server something."""
        async for _ in self._membership.watch():
            pass

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._pipe.send(Lookups(self._times, self._num_hits, self._num_degraded))
            self._clear()

    def _clear(self) -> None:
        self._times: list[Lookup] = []
        self._num_hits = 0
        self._num_degraded = 0
