"""Composition root of a prefill worker."""

from __future__ import annotations

import dataclasses

import grpc

from common.config import Role, WorkerConfig
from common.engine.build import BuiltEngine
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_source
from common.worker.attach_session import AttachSession
from common.worker.host import RoleParts, run_worker
from common.worker.pool_blocks import PoolBlocks
from common.worker.registration import RegistrationServicer
from common.worker.worker import Worker
from prefill_worker.hand_over import HandOver
from prefill_worker.servicer import PrefillWorkerServicer
from protos import worker_pb2_grpc


def run(config: WorkerConfig) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code."""

    def make_role(
        worker: Worker, blocks: PoolBlocks, built: BuiltEngine, registration: RegistrationServicer
    ) -> RoleParts:
        return _make_role(config, worker, blocks)

    return run_worker(dataclasses.replace(config, role=Role.PREFILL), make_role)


def _make_role(config: WorkerConfig, worker: Worker, blocks: PoolBlocks) -> RoleParts:
    channels = PeerChannels()
    senders = make_source(config.transfer, blocks, channels, worker.counters)
    hand_over = HandOver(worker, senders.open)

    def add_services(server: grpc.aio.Server, session: AttachSession) -> None:
        worker_pb2_grpc.add_PrefillWorkerServicer_to_server(PrefillWorkerServicer(session), server)

    async def close() -> None:
        await hand_over.close()
        await senders.close()
        await channels.close()

    return RoleParts(
        taker=hand_over, add_services=add_services, service_names=("slipstream.v1.PrefillWorker",), close=close
    )
