"""A cluster of index servers: which node holds which hash slot, and connections to each.

redis-py's own cluster client reads the topology anew after any fault, under a lock that all commands take, and
from a node that may be the one that hangs: one lost node stopped the lookups on all shards.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from redis.asyncio import BlockingConnectionPool, Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from common.index.packing import pack_in_c

logger = logging.getLogger(__name__)

REFRESH_INTERVAL_S = 0.5


class Address(NamedTuple):
    host: str
    port: int


class Cluster:
    """Owner: IndexClient; one event loop.

    A node that is away or hangs costs its own slots only: the topology is read in the background, from whichever
    node answers first. While a slot moves from node to node, its commands fail.
    """

    def __init__(self, url: str, **options: Any) -> None:
        """`url`: of any node, as for one server. Raises ValueError."""
        self._seed = BlockingConnectionPool.from_url(url, **options)
        self._options = options
        connection = self._seed.connection_kwargs
        self._seed_address = Address(connection.get("host", "localhost"), int(connection.get("port", 6379)))
        self._nodes: dict[Address, Redis] = {self._seed_address: _connected(self._seed)}
        self._owners: list[Address | None] = []  # by hash slot; empty until the topology is known
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")

    async def execute(self, slot: int, arguments: Sequence[Any]) -> Any:
        """A command whose keys have this hash slot. Raises RedisError or OSError."""
        if not self._owners:
            await asyncio.shield(self._start_refresh())
        address = self._owners[slot]
        if address is None:
            self._refresh_soon()
            raise RedisConnectionError(f"no node of the cluster holds hash slot {slot}")
        try:
            return await _execute(self._node(address), arguments)
        except MovedError as error:
            address = Address(error.host or address.host, int(error.port))
            self._owners[slot] = address
            self._refresh_soon()
            return await _execute(self._node(address), arguments)
        except (RedisConnectionError, RedisTimeoutError, OSError):
            self._refresh_soon()
            raise

    async def aclose(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait([self._refreshing])
        await asyncio.gather(*(node.aclose() for node in self._nodes.values()), return_exceptions=True)

    def _node(self, address: Address) -> Redis:
        node = self._nodes.get(address)
        if node is None:
            connection = {**self._seed.connection_kwargs, "host": address.host, "port": address.port}
            pool = BlockingConnectionPool(
                connection_class=self._seed.connection_class,
                max_connections=self._seed.max_connections,
                timeout=self._seed.timeout,
                **connection,
            )
            node = self._nodes[address] = Redis.from_pool(pool)
        return node

    def _refresh_soon(self) -> None:
        if time.monotonic() >= self._refreshed_at + REFRESH_INTERVAL_S:
            self._start_refresh()

    def _start_refresh(self) -> asyncio.Task[None]:
        if self._refreshing is None or self._refreshing.done():
            self._refreshed_at = time.monotonic()
            self._refreshing = asyncio.create_task(self._refresh(), name="index-cluster-topology")
            self._refreshing.add_done_callback(_note_failure)
        return self._refreshing

    async def _refresh(self) -> None:
        asked = [asyncio.create_task(_owners(address, node)) for address, node in self._nodes.items()]
        try:
            self._owners = await _first_answer(asked)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)  # what the late ones raise is of no matter
        known = {*self._owners, self._seed_address}
        for address in self._nodes.keys() - known:
            await self._nodes.pop(address).aclose()


def _connected(pool: BlockingConnectionPool) -> Redis:
    redis = Redis.from_pool(pool)
    pack_in_c(redis)
    return redis


async def _execute(node: Redis, arguments: Sequence[Any]) -> Any:
    execute: Callable[..., Awaitable[Any]] = node.execute_command
    return await execute(*arguments)


async def _first_answer(asked: Sequence[asyncio.Task[list[Address | None]]]) -> list[Address | None]:
    """Raises RedisConnectionError when no node answers."""
    failure: Exception | None = None
    for answer in asyncio.as_completed(asked):
        try:
            return await answer
        except (RedisError, OSError) as error:
            failure = error
    raise RedisConnectionError("no node of the cluster answers") from failure


async def _owners(address: Address, node: Redis) -> list[Address | None]:
    """Owner of each hash slot, as this node knows it."""
    owners: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
    for low, high, (host, port, *_), *_replicas in await _execute(node, ("CLUSTER SLOTS",)):
        owner = Address(host.decode() if host else address.host, port)
        owners[low : high + 1] = [owner] * (high + 1 - low)
    return owners


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.debug("the cluster's topology is not known: %s", task.exception())
