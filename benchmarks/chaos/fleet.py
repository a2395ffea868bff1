"""Two workers of each role, two routers and an index server as real processes, with a proxy before each."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

import slipstream
from benchmarks.chaos.process import Process, free_port
from benchmarks.chaos.proxy import Link, Proxy
from benchmarks.chaos.socket_owner import find_owner
from common.config import EngineConfig, IndexConfig, Role, RouterConfig, TransferConfig, WorkerConfig
from common.errors import UnavailableError
from common.index.server import EmbeddedIndexConfig, EmbeddedIndexServer
from protos import admin_pb2, admin_pb2_grpc, layout_pb2
from slipstream.child import stop_all
from slipstream.cores import WORKER_ENVIRONMENT
from slipstream.settings import command_line

PROGRAM = (sys.executable, "-m", "slipstream")
INDEX = "index"
READY_TIMEOUT_S = 60.0
IDLE_TIMEOUT_S = 20.0
STOP_GRACE_S = 15.0
RPC_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """`lease_s` is short, so that what waits for its end does not take long. `kv_transports`: gRPC's bytes go through
    the proxies, which hold them for a stage's sake; what goes through shared memory they can't."""

    model: Path
    prefill_engine: EngineConfig
    decode_engine: EngineConfig
    lease_s: float = 4.0
    kv_transports: tuple[str, ...] = ("grpc",)


class Fleet:
    """An async context manager: every process is ready inside, and stopped after it. Owned by the event loop."""

    def __init__(self, spec: FleetSpec) -> None:
        self.spec = spec
        self.log_dir = Path(tempfile.mkdtemp(prefix="slipstream-chaos-"))
        self.keeps_logs = True
        self.processes: dict[str, Process] = {}
        self.proxies: dict[str, Proxy] = {}
        self._index_proxies: dict[str, Proxy] = {}  # one for each process that uses the index
        self._ports: dict[str, int] = {}
        self._index_port = free_port()
        self._index = EmbeddedIndexServer(EmbeddedIndexConfig(port=self._index_port))
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> Fleet:
        try:
            await asyncio.to_thread(self._index.start)
            for role in (Role.PREFILL, Role.DECODE):
                for number in range(2):
                    await self._add_worker(role, f"{role}-{number}")
            for number in range(2):
                await self._add_router(f"router-{number}")
            await asyncio.gather(*(process.wait_serving() for process in self.processes.values()))
            await self.wait_ready()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._close()

    @property
    def prefill_workers(self) -> list[str]:
        return [f"{Role.PREFILL}-{number}" for number in range(2)]

    @property
    def decode_workers(self) -> list[str]:
        return [f"{Role.DECODE}-{number}" for number in range(2)]

    @property
    def workers(self) -> list[str]:
        return [*self.prefill_workers, *self.decode_workers]

    @property
    def routers(self) -> list[str]:
        return [f"router-{number}" for number in range(2)]

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes.values() if process.alive]

    def address(self, name: str) -> str:
        """Of the process itself, past its proxy."""
        return f"127.0.0.1:{self._ports[name]}"

    def admin(self, name: str) -> admin_pb2_grpc.AdminStub:
        if name not in self._channels:
            options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
            self._channels[name] = grpc.aio.insecure_channel(self.address(name), options)
        return admin_pb2_grpc.AdminStub(self._channels[name])

    def transfer_links(self) -> Iterator[Link]:
        """Those that KV blocks take."""
        for sink in self.decode_workers:
            for source in self.prefill_workers:
                yield self.proxies[sink].link(source)

    def links_of(self, name: str) -> Iterator[Link]:
        """Every link to and from a process."""
        if name in self.proxies:
            for source in (*self.routers, *self.prefill_workers):
                yield self.proxies[name].link(source)
        for target, proxy in self.proxies.items():
            if target != name:
                yield proxy.link(name)
        yield self._index_proxies[name].link(name)

    async def restart(self, name: str) -> None:
        """Under its old name and address. Returns when it serves."""
        process = self.processes[name]
        process.start()
        await process.wait_serving()

    def kill_index(self) -> None:
        os.kill(self._index.pid, signal.SIGKILL)

    async def restart_index(self) -> None:
        """Empty, at its old address."""
        await asyncio.to_thread(self._index.stop)
        self._index = EmbeddedIndexServer(EmbeddedIndexConfig(port=self._index_port))
        await asyncio.to_thread(self._index.start)

    async def wait_ready(self) -> None:
        """Until each router has a stream to the present life of each worker. Raises UnavailableError."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while (missing := await self._missing()) is not None:
            if time.monotonic() > deadline_s:
                raise UnavailableError(f"the fleet is not whole after {READY_TIMEOUT_S:g} s: {missing}")
            await asyncio.sleep(0.1)

    async def wait_idle(self) -> list[str]:
        """Until nothing is held anywhere; what still is after IDLE_TIMEOUT_S, and books that contradict themselves."""
        deadline_s = time.monotonic() + IDLE_TIMEOUT_S
        while left := [line for lines in await asyncio.gather(*map(self.held, self.workers)) for line in lines]:
            if time.monotonic() > deadline_s:
                return left
            await asyncio.sleep(0.1)
        return []

    async def held(self, name: str) -> list[str]:
        """What a worker still holds, and how its books contradict themselves; nothing when it is idle."""
        admin = self.admin(name)
        try:
            books = await admin.CheckIntegrity(admin_pb2.CheckIntegrityRequest(), timeout=RPC_TIMEOUT_S)
            tickets = (await admin.ListTickets(admin_pb2.ListTicketsRequest(), timeout=RPC_TIMEOUT_S)).tickets
            requests = (await admin.ListRequests(admin_pb2.ListRequestsRequest(), timeout=RPC_TIMEOUT_S)).requests
        except grpc.aio.AioRpcError as error:
            return [f"{name}: {error.code().name}: {error.details()}"]
        open_states = (
            admin_pb2.TICKET_STATE_OFFERED,
            admin_pb2.TICKET_STATE_CREDITED,
            admin_pb2.TICKET_STATE_MAPPED,
            admin_pb2.TICKET_STATE_SENDING,
        )
        num_tickets = sum(ticket.state in open_states or ticket.quarantined for ticket in tickets)
        held = {
            "blocks in use": books.num_blocks - books.num_free_blocks,
            "blocks in quarantine": books.num_quarantined_blocks,
            "reservations": books.num_reservations,
            f"requests ({', '.join(one.request_id for one in requests)})": books.num_requests,
            "open tickets": num_tickets,
        }
        return [f"{name} holds {count} {what}" for what, count in held.items() if count]

    async def _missing(self) -> str | None:
        try:
            for name in self.routers:
                request = admin_pb2.StatusRequest()
                status = await self.admin(name).Status(request, timeout=RPC_TIMEOUT_S)
                if status.router.index_degraded:
                    return f"{name} has lost the index"
                for worker_id in self.workers:
                    own = (await self.admin(worker_id).Status(request, timeout=RPC_TIMEOUT_S)).workers[0]
                    # Former lives may be listed, too.
                    if not any(
                        worker.worker_id == worker_id
                        and worker.incarnation == own.incarnation
                        and worker.reachable
                        and worker.state == layout_pb2.WORKER_STATE_READY
                        for worker in status.workers
                    ):
                        return f"{worker_id} is not ready for {name}"
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        return None

    async def _index_config(self, name: str) -> IndexConfig:
        proxy = self._index_proxies[name] = Proxy(INDEX, self._index_port, lambda port: name, http2=False)
        await proxy.start()
        return IndexConfig(index_url=f"redis://{proxy.address}")

    def _name_peer(self, port: int) -> str | None:
        pids = {process.pid: name for name, process in self.processes.items() if process.alive}
        pid = find_owner(port, pids)
        return None if pid is None else pids[pid]

    async def _add_worker(self, role: Role, name: str) -> None:
        port = self._ports[name] = free_port()
        proxy = self.proxies[name] = Proxy(name, port, self._name_peer)
        await proxy.start()
        config = WorkerConfig(
            engine=self.spec.prefill_engine if role is Role.PREFILL else self.spec.decode_engine,
            index=await self._index_config(name),
            role=role,
            worker_id=name,
            port=port,
            advertise=proxy.address,
            lease_s=self.spec.lease_s,
            transfer=TransferConfig(kv_transports=self.spec.kv_transports),
        )
        self._add_process(name, "prefill" if role is Role.PREFILL else "decode", config)

    async def _add_router(self, name: str) -> None:
        port = self._ports[name] = free_port()
        config = RouterConfig(
            index=await self._index_config(name),
            model=str(self.spec.model),
            served_model_name=self.spec.decode_engine.served_model_name,
            router_id=name,
            grpc_port=port,
            http_port=0,
            min_workers=4,
            max_local_prefill_tokens=0,  # what is computed where is the schedule's business
        )
        self._add_process(name, "router", config)

    def _add_process(self, name: str, command: str, config: Any) -> None:
        root = str(Path(slipstream.__file__).parent.parent)
        environment = {
            **WORKER_ENVIRONMENT,
            **os.environ,
            "PYTHONPATH": root,
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
        }
        process = Process(name, (*PROGRAM, *command_line(command, config)), environment, self.log_dir)
        self.processes[name] = process
        process.start()

    async def _close(self) -> None:
        for process in self.processes.values():
            if process.frozen and process.alive:
                process.thaw()
        for link in (link for name in self.workers if name in self.processes for link in self.links_of(name)):
            link.open()
        try:
            for names in (self.routers, self.workers):
                children = [self.processes[name].child for name in names if name in self.processes]
                await asyncio.to_thread(stop_all, children, STOP_GRACE_S)
        finally:
            for channel in self._channels.values():
                await channel.close()
            for proxy in (*self.proxies.values(), *self._index_proxies.values()):
                await proxy.close()
            await asyncio.to_thread(self._index.stop)
            if not self.keeps_logs:
                shutil.rmtree(self.log_dir, ignore_errors=True)
