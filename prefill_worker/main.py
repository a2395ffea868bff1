"""Composition root of a prefill worker."""

from __future__ import annotations

import dataclasses
import functools

import grpc

from common.config import Role, WorkerConfig
from common.engine.build import BuiltEngine
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_source
from common.worker.attach_session import AttachSession
from common.worker.departures import Departures
from common.worker.host import RoleParts, run_worker
from common.worker.map_timing import MapTiming
from common.worker.pool_blocks import PoolBlocks
from common.worker.registration import RegistrationServicer
from common.worker.worker import Worker
from prefill_worker.hand_over import HandOver
from prefill_worker.servicer import PrefillWorkerServicer
from protos import worker_pb2_grpc


def run(config: WorkerConfig) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""
    config = dataclasses.replace(config, role=Role.PREFILL)
    return run_worker(config, functools.partial(_make_role, config))


def _make_role(
    config: WorkerConfig,
    worker: Worker,
    blocks: PoolBlocks,
    built: BuiltEngine,
    registration: RegistrationServicer,
    channels: PeerChannels,
) -> RoleParts:
    senders = make_source(config.transfer, blocks, channels, worker.counters)
    departures = Departures(
        worker,
        channels,
        senders.open,
        MapTiming(built.kv_cache.spec, built.engine.config.max_num_batched_tokens),
        lease_s=config.lease_s,
    )
    hand_over = HandOver(worker, departures)

    def add_services(server: grpc.aio.Server, session: AttachSession) -> None:
        worker_pb2_grpc.add_PrefillWorkerServicer_to_server(PrefillWorkerServicer(session), server)

    async def close() -> None:
        await departures.close()
        await senders.close()
        await channels.close()

    return RoleParts(
        taker=hand_over,
        add_services=add_services,
        service_names=("slipstream.v1.PrefillWorker",),
        tasks=(departures.watch_sinks(),),
        is_idle=lambda: not departures.num_open,
        close=close,
    )
