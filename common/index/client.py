"""The one connection to the index server: standalone, over TLS, on a Unix socket, or a cluster.

Owns the pool, its time limits and the loading of the server's functions. Turns every fault of the server or of
the network into `IndexUnavailableError`, so that nothing of redis leaves common/index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError

from common.errors import ConfigError, UnavailableError
from common.index.packing import pack_in_c

logger = logging.getLogger(__name__)

CLUSTER_SHARDS = 12  # divisible by 1, 2, 3, 4, 6 and 12 primaries

Argument = bytes | str | int


class IndexUnavailableError(UnavailableError):
    """The index server does not answer, or answers with an error."""


class IndexFullError(IndexUnavailableError):
    """The index server has reached its memory limit."""


class IndexClient:
    """Lives on one event loop. Connects at the first command; `close()` ends it.

    A command is tried twice when its connection turns out to be broken (an idle one may have been cut); all
    commands of the index are idempotent. A command that is cancelled closes its connection.
    """

    def __init__(self, redis: Redis | RedisCluster, num_shards: int) -> None:
        pack_in_c(redis)
        self._redis = redis
        self.num_shards = num_shards

    @classmethod
    def from_url(cls, url: str, *, timeout_s: float = 2.0, max_connections: int = 32) -> IndexClient:
        """`redis://`, `rediss://`, `unix://`, or for a cluster `redis+cluster://`, `rediss+cluster://`.

        `?shards=N` sets the number of shards; all processes of a fleet need the same. Raises ConfigError.
        """
        url, num_shards = _split_shards(url)
        retry = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
        options: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "socket_keepalive": True,
            "retry": retry,
        }
        scheme = urlsplit(url).scheme
        try:
            if scheme in ("redis+cluster", "rediss+cluster"):
                cluster = RedisCluster.from_url(
                    url.replace("+cluster", "", 1), max_connections=max_connections, **options
                )
                return cls(cluster, num_shards or CLUSTER_SHARDS)
            if scheme == "unix":
                del options["socket_keepalive"]
            pool = BlockingConnectionPool.from_url(url, max_connections=max_connections, timeout=timeout_s, **options)
        except ValueError as error:
            raise ConfigError("index_url", f"{error}, is {url!r}") from None
        return cls(Redis.from_pool(pool), num_shards or 1)

    async def command(self, key: bytes, *arguments: Argument) -> Any:
        """One command on the node that holds `key`. Raises IndexUnavailableError."""
        try:
            return await self._execute(key, arguments)
        except (RedisError, OSError) as error:
            raise _translate(error) from error

    async def call(self, function: str, keys: Sequence[bytes], *arguments: Argument) -> Any:
        """One of functions.lua, loaded first where the server does not have it. Raises IndexUnavailableError."""
        command: tuple[Argument, ...] = ("FCALL", function, len(keys), *keys, *arguments)
        try:
            try:
                return await self._execute(keys[0], command)
            except ResponseError as error:
                if "Function not found" not in str(error):
                    raise
            await self._load_functions(keys[0])
            return await self._execute(keys[0], command)
        except (RedisError, OSError) as error:
            raise _translate(error) from error

    async def close(self) -> None:
        await self._redis.aclose()

    async def _execute(self, key: bytes, arguments: Sequence[Argument]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        num_cancels = task.cancelling()
        try:
            return await self._send(key, arguments)
        finally:
            # redis-py swallows a cancellation now and then (by wait_for() of Python 3.11 and by its own handlers).
            # A loop that is being stopped, or a call whose time is over, must hear of it.
            if task.cancelling() > num_cancels:
                raise asyncio.CancelledError

    async def _send(self, key: bytes, arguments: Sequence[Argument]) -> Any:
        execute: Callable[..., Awaitable[Any]] = self._redis.execute_command
        if isinstance(self._redis, RedisCluster):
            # Given the node, redis-py neither parses the command nor asks the server where its keys are.
            await self._redis.initialize()
            node = self._redis.nodes_manager.get_node_from_slot(key_slot(key))
            return await execute(*arguments, target_nodes=node)
        return await execute(*arguments)

    async def _load_functions(self, key: bytes) -> None:
        code = resources.files(__package__).joinpath("functions.lua").read_text(encoding="utf-8")
        try:
            await self._execute(key, ("FUNCTION", "LOAD", code))
            logger.info("loaded the index functions into the server")
        except ResponseError as error:
            if "already exists" not in str(error):
                raise


def _translate(error: Exception) -> IndexUnavailableError:
    if isinstance(error, OutOfMemoryError):
        return IndexFullError(f"index server: {error}")
    return IndexUnavailableError(f"index server: {type(error).__name__}: {error}")


def _split_shards(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    shards = query.pop("shards", None)
    if shards is None:
        return url, None
    if not shards[-1].isdigit() or int(shards[-1]) < 1:
        raise ConfigError("index_url", f"shards must be a number from 1, is {shards[-1]!r}")
    return urlunsplit(parts._replace(query=urlencode(query, doseq=True))), int(shards[-1])
