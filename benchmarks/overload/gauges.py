"""What might grow while a fleet is offered too much: memory of its processes, and what they hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc
import psutil

from protos import admin_pb2, admin_pb2_grpc
from slipstream.launcher import Cluster

INTERVAL_S = 1.0
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`rss_mib` by process; the rest over the fleet."""

    rss_mib: dict[str, float]
    num_at_router: int
    num_at_workers: int
    num_reservations: int
    num_used_blocks: int


class Gauges:
    """Reads once a second until closed. Owned by one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._router_names = set(cluster.router_names)
        names = [*cluster.router_names, *(worker.id for worker in cluster.workers)]
        self._processes = {name: psutil.Process(cluster.child(name).pid) for name in names}
        self._channel = grpc.aio.insecure_channel(cluster.grpc_addresses[0])
        self._admin = admin_pb2_grpc.AdminStub(self._channel)
        self.readings: list[Reading] = []
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds used so far, by kind of process; `self` is this one."""
        used_s = {"workers": 0.0, "routers": 0.0, "self": sum(psutil.Process().cpu_times()[:2])}
        for name, process in self._processes.items():
            used_s["routers" if name in self._router_names else "workers"] += sum(process.cpu_times()[:2])
        return used_s

    async def read(self) -> Reading:
        status = await self._admin.Status(admin_pb2.StatusRequest(), timeout=30)
        loads = [worker.load for worker in status.workers]
        return Reading(
            rss_mib={name: process.memory_info().rss / MIB for name, process in self._processes.items()},
            num_at_router=status.router.num_active_requests,
            num_at_workers=sum(load.num_running + load.num_waiting for load in loads),
            num_reservations=sum(load.num_reservations for load in loads),
            num_used_blocks=sum(load.num_blocks - load.num_free_blocks for load in loads),
        )

    async def _run(self) -> None:
        while True:
            self.readings.append(await self.read())
            await asyncio.sleep(INTERVAL_S)
