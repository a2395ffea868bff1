"""This engine served: the processes of `slipstream up`, called by its own client over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.speed.request import Answer, Request
from benchmarks.speed.served.target import StreamTarget, ask_all
from common.config import DType, EngineConfig, Role
from slipstream.async_client import AsyncClient
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster, ClusterEvent

MIB = 2**20
KV_MIB = 512  # of each worker: what a worker has committed before it is ready


@dataclass(slots=True)
class SlipstreamTarget:
    client: AsyncClient

    async def stream(self, request: Request) -> AsyncGenerator[int, None]:
        options = self.client.stream(
            request.text or request.token_ids, max_tokens=request.max_tokens, temperature=0.0, ignore_eos=True
        )
        async for delta in options:
            if num_tokens := sum(len(choice.token_ids) for choice in delta.choices):
                yield num_tokens


class SlipstreamServer:
    """One prefill and one decode worker, or one that does both. Owned by one thread."""

    is_ours = True
    is_server = True
    has_prefix_cache = True
    takes_arrivals = True

    def __init__(self, name: str, config: ClusterConfig, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.name = name
        self.version = version("slipstream")
        self.ready_s: dict[str, float] = {}  # from its start, by process
        self.cluster = Cluster(config, on_event=self._note)
        self._is_open = False

    def start(self) -> None:
        self.cluster.start()
        self._is_open = True

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        return self.runner.run(ask_all(self, requests, concurrency))

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[StreamTarget]:
        async with AsyncClient(self.cluster.grpc_addresses) as client:
            await client.models()  # connects
            yield SlipstreamTarget(client)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.cluster.close()

    def resident_mib(self) -> dict[str, float]:
        """Memory of each worker."""
        return {one.id: psutil.Process(one.pid).memory_info().rss / MIB for one in self.cluster.workers}

    def _note(self, event: ClusterEvent) -> None:
        # A router tells its address first, and that it is ready later.
        self.ready_s[event.name] = event.elapsed_s


def cluster_config(model: Path, *, both: bool, dtype: DType = DType.BFLOAT16) -> ClusterConfig:
    """As `slipstream up` starts it, on free ports; probes off, for an idle contender must not compute."""
    engine = EngineConfig(model=str(model), dtype=dtype, kv_memory=f"{KV_MIB}MiB")
    return ClusterConfig(
        engine=engine, role=Role.BOTH if both else None, grpc_port=0, http_port=0, probe_interval_s=0.0
    )
