"""A worker process's life: bind, load, warm up, serve, register; and the reverse, with drain."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

import grpc
import torch

from common.config import Role, WorkerConfig
from common.engine.build import BuiltEngine, build_engine
from common.errors import SlipstreamError
from common.heap import freeze_loaded
from common.index.tls_url import with_certificates
from common.kv.ticket_table import TicketTable
from common.model.weight_layout import WeightLayout
from common.net.peer_role import PeerRole
from common.net.server import GrpcServer
from common.net.tls_folder import load_identity
from common.telemetry.logs import configure_logging
from common.thread_slice import answer_at_once
from common.transport.channels import PeerChannels
from common.vital_tasks import VitalTasks
from common.worker.admin import WorkerAdminServicer
from common.worker.attach_session import AttachSession, LegTaker
from common.worker.callers import worker_guard
from common.worker.drain import Drain
from common.worker.index_presence import IndexPresence
from common.worker.malloc import give_back_freed, keep_large_buffers
from common.worker.pool_blocks import PoolBlocks
from common.worker.pool_commit import PoolCommit
from common.worker.registration import ModelFacts, RegistrationServicer, WorkerIdentity, build_registration
from common.worker.warm_up import warm_up
from common.worker.worker import Worker
from protos import admin_pb2_grpc, worker_pb2_grpc

logger = logging.getLogger(__name__)

STOP_GRACE_S = 1.0
# Where no layout is the best for every step: a prefill worker's have many tokens, a decode worker's few.
WEIGHT_LAYOUTS = {
    Role.PREFILL: WeightLayout.ROWS,
    Role.DECODE: WeightLayout.PANELS,
    Role.BOTH: WeightLayout.BOTH,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleParts:
    """What a role adds to a worker: who takes legs, its services, its background tasks."""

    taker: LegTaker
    add_services: Callable[[grpc.aio.Server, AttachSession], None]
    service_names: tuple[str, ...]
    tickets: TicketTable | None = None
    tasks: tuple[Coroutine[Any, Any, None], ...] = ()
    is_idle: Callable[[], bool] = lambda: True  # of what the role itself has under way
    close: Callable[[], Coroutine[Any, Any, None]] | None = None


class MakeRole(Protocol):
    """`channels` are the role's to close."""

    def __call__(
        self,
        worker: Worker,
        blocks: PoolBlocks,
        built: BuiltEngine,
        registration: RegistrationServicer,
        channels: PeerChannels,
    ) -> RoleParts: ...


def run_worker(config: WorkerConfig, make_role: MakeRole) -> int:
    """Runs until SIGTERM or SIGINT. The exit code: 0, or 1 after a message that says what to do."""
    configure_logging(config.worker_id or config.role.value, config.process.log_level)
    keep_large_buffers()
    answer_at_once()  # the event loop, and gRPC's threads; the engine's thread computes at length
    torch.set_num_threads(config.engine.num_threads or len(os.sched_getaffinity(0)))
    try:
        return asyncio.run(_serve(config, make_role))
    except SlipstreamError as error:
        logger.error("%s", error)
        return 1


async def _serve(config: WorkerConfig, make_role: MakeRole) -> int:
    stop = asyncio.Event()
    failures: list[BaseException] = []

    def crash(error: BaseException) -> None:
        failures.append(error)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tls_dir = config.process.tls_dir
    tls = None if tls_dir is None else load_identity(tls_dir, PeerRole.WORKER)
    server = GrpcServer(tls=tls, guard=None if tls is None else worker_guard(), bulk=True)
    port = server.bind(config.host, config.port)
    built, commit = await asyncio.to_thread(_load, config)
    identity = _identity(config, port)
    async with AsyncExitStack() as stack:
        commit.start()
        stack.callback(commit.stop)
        presence = IndexPresence(with_certificates(config.index, tls), identity, config.lease_s)
        stack.push_async_callback(presence.leave)
        worker = Worker(built.engine, publish=presence.publish, on_crash=crash, index_state=presence.state)
        registration = RegistrationServicer(_register(config, identity, built, draining=False))
        role = make_role(worker, PoolBlocks(built.kv_cache), built, registration, PeerChannels(tls))

        def announce(draining: bool) -> None:
            registration.current = _register(config, identity, built, draining=draining)
            worker.hub.announce(registration.current)
            presence.join(registration.current)

        drain = Drain(worker, announce, role.is_idle)
        await _start_server(server, worker, role, registration, drain, config.lease_s)
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        worker.engine.start()
        stack.push_async_callback(worker.engine.stop)
        if role.close is not None:
            stack.push_async_callback(role.close)
        tasks = VitalTasks(crash)
        stack.callback(tasks.cancel)
        for position, task in enumerate((worker.report_load(config.lease_s), *role.tasks)):
            tasks.start(task, f"worker {position}")
        await server.set_serving(True)
        presence.join(registration.current)
        _tell_ready(identity)
        await stop.wait()
        if not failures:
            await server.set_serving(False)
            drain.begin()
            if not await drain.wait_idle(config.drain_timeout_s):
                logger.warning("stopping with unfinished work after %g s of draining", config.drain_timeout_s)
    return 1 if failures else 0


def _load(config: WorkerConfig) -> tuple[BuiltEngine, PoolCommit]:
    built = build_engine(
        config.engine, hand_back_when_preempted=config.role is Role.DECODE, layout=WEIGHT_LAYOUTS[config.role]
    )
    warm_up(built.engine)
    freeze_loaded()
    give_back_freed()
    commit = PoolCommit(built.kv_cache, built.engine.kv.pool)
    commit.begin()
    return built, commit


def _identity(config: WorkerConfig, port: int) -> WorkerIdentity:
    address = config.advertise or f"{config.host}:{port}"
    return WorkerIdentity(
        worker_id=config.worker_id or f"{config.role.value}-{address}",
        incarnation=secrets.randbits(63),
        role=config.role,
        address=address,
    )


def _register(config: WorkerConfig, identity: WorkerIdentity, built: BuiltEngine, *, draining: bool) -> Any:
    return build_registration(
        identity,
        ModelFacts(
            name=built.served_name,
            fingerprint=built.model_fingerprint,
            max_model_len=built.max_model_len,
            vocab_size=built.vocab_size,
            eos_token_ids=tuple(sorted(built.eos_token_ids)),
            spec=built.kv_cache.spec,
            key_root=built.key_root,
            backend=built.backend,
            max_num_batched_tokens=built.engine.config.max_num_batched_tokens,
        ),
        transfer=config.transfer,
        index_stride=config.index.index_stride,
        version=version("slipstream"),
        lease_s=config.lease_s,
        draining=draining,
    )


async def _start_server(
    server: GrpcServer,
    worker: Worker,
    role: RoleParts,
    registration: RegistrationServicer,
    drain: Drain,
    lease_s: float,
) -> None:
    session = AttachSession(worker.hub, role.taker, lambda: registration.current, lease_s=lease_s)
    role.add_services(server.server, session)
    worker_pb2_grpc.add_RegistrationServicer_to_server(registration, server.server)
    admin = WorkerAdminServicer(worker.engine, lambda: registration.current, worker.load_report, role.tickets, drain)
    admin_pb2_grpc.add_AdminServicer_to_server(admin, server.server)
    await server.start(["slipstream.v1.Registration", "slipstream.v1.Admin", *role.service_names])


def _tell_ready(identity: WorkerIdentity) -> None:
    told = {"worker_id": identity.worker_id, "role": identity.role.value, "address": identity.address}
    sys.stdout.write(f"READY {json.dumps(told)}\n")
    sys.stdout.flush()
