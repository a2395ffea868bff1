"""The one connection to the index server: standalone, over TLS, on a Unix socket, or a cluster.

Owns the pool, its time limits and the loading of the server's functions. Turns every fault of the server or of
the network into `IndexUnavailableError`, so that nothing of redis leaves common/index.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from common.address import without_password
from common.errors import ConfigError, UnavailableError
from common.index.cluster import Cluster
from common.index.outage_log import OutageLog
from common.index.packing import pack_in_c

logger = logging.getLogger(__name__)

CLUSTER_SHARDS = 12  # divisible by 1, 2, 3, 4, 6 and 12 primaries

FAULTS = (RedisError, OSError)  # what redis-py raises when the server is at fault

Argument = bytes | str | int


class IndexUnavailableError(UnavailableError):
    """The index server does not answer, or answers with an error."""


class IndexFullError(IndexUnavailableError):
    """The index server has reached its memory limit."""


class IndexClient:
    """Lives on one event loop. Connects at the first command; `close()` ends it.

    A command is tried twice when its connection turns out to be broken (an idle one may have been cut); all
    commands of the index are idempotent. A command that is cancelled closes its connection. What is wrong with the
    server is logged here, once for all that use it.
    """

    def __init__(self, redis: Redis | Cluster, num_shards: int, address: str) -> None:
        self._redis = redis
        self.num_shards = num_shards
        self._outage = OutageLog(logger, f"index server {address}")
        self._closed = False

    @classmethod
    def from_url(cls, url: str, *, timeout_s: float = 2.0, max_connections: int = 32) -> IndexClient:
        """`redis://`, `rediss://`, `unix://`, or for a cluster `redis+cluster://`, `rediss+cluster://`.

        `?shards=N` sets the number of shards; all processes of a fleet need the same. Raises ConfigError.
        """
        url, num_shards = _split_shards(url)
        address = without_password(url)
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
                cluster = Cluster(
                    url.replace("+cluster", "", 1), max_connections=max_connections, timeout=timeout_s, **options
                )
                return cls(cluster, num_shards or CLUSTER_SHARDS, address)
            if scheme == "unix":
                del options["socket_keepalive"]
            pool = BlockingConnectionPool.from_url(url, max_connections=max_connections, timeout=timeout_s, **options)
        except ValueError as error:
            raise ConfigError("index_url", f"{error}, is {address!r}") from None
        redis = Redis.from_pool(pool)
        pack_in_c(redis)
        return cls(redis, num_shards or 1, address)

    async def command(self, key: bytes, *arguments: Argument) -> Any:
        """One command on the node that holds `key`. Raises IndexUnavailableError."""
        with self._telling(key):
            return await self._execute(key, arguments)

    async def call(self, function: str, keys: Sequence[bytes], *arguments: Argument) -> Any:
        """One of functions.lua, loaded first where the server does not have it. Raises IndexUnavailableError."""
        command: tuple[Argument, ...] = ("FCALL", function, len(keys), *keys, *arguments)
        with self._telling(keys[0]):
            try:
                return await self._execute(keys[0], command)
            except ResponseError as error:
                if "Function not found" not in str(error):
                    raise
            await self._load_functions(keys[0])
            return await self._execute(keys[0], command)

    async def ping(self) -> None:
        """Asks whether the server answers, and logs nothing. Raises IndexUnavailableError."""
        try:
            await self._execute(b"", ("PING",))
        except FAULTS as error:
            raise _translate(error) from error

    async def close(self) -> None:
        """Commands under way and later ones fail, and none opens a connection again. Never raises for the network."""
        self._closed = True
        try:
            await self._redis.aclose()
        except FAULTS as error:
            logger.debug("a connection to the index server was not closed in time: %s", error)

    @contextmanager
    def _telling(self, key: bytes) -> Iterator[None]:
        try:
            yield
        except FAULTS as error:
            translated = _translate(error)
            self._outage.failed(translated, self._part(key))
            raise translated from error
        if self._outage:
            self._outage.succeeded(self._part(key))

    def _part(self, key: bytes) -> int:
        """Nodes of a cluster fail apart."""
        return int(key_slot(key)) if isinstance(self._redis, Cluster) else 0

    async def _execute(self, key: bytes, arguments: Sequence[Argument]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        num_cancels = task.cancelling()
        if self._closed:
            raise IndexUnavailableError("the connection was closed here")
        try:
            return await self._send(key, arguments)
        finally:
            if self._closed:  # redis-py has tried twice, and the second time made a new connection
                await self.close()
            # redis-py swallows a cancellation now and then (by wait_for() of Python 3.11 and by its own handlers).
            # A loop that is being stopped, or a call whose time is over, must hear of it.
            if task.cancelling() > num_cancels:
                raise asyncio.CancelledError

    async def _send(self, key: bytes, arguments: Sequence[Argument]) -> Any:
        if isinstance(self._redis, Cluster):
            return await self._redis.execute(key_slot(key), arguments)
        execute: Callable[..., Awaitable[Any]] = self._redis.execute_command
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
        return IndexFullError(str(error))
    return IndexUnavailableError(_reason(error))


def _reason(error: BaseException) -> str:
    """What went wrong, in the operating system's words where it was asked."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused"
        if isinstance(cause, RedisTimeoutError | TimeoutError):
            return "no answer in time"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _split_shards(url: str) -> tuple[str, int | None]:
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    shards = query.pop("shards", None)
    if shards is None:
        return url, None
    if not shards[-1].isdigit() or int(shards[-1]) < 1:
        raise ConfigError("index_url", f"shards must be a number from 1, is {shards[-1]!r}")
    return urlunsplit(parts._replace(query=urlencode(query, doseq=True))), int(shards[-1])
