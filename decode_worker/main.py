"""Composition root of a decode worker, role `both` included."""

from __future__ import annotations

import grpc

from common.config import Role, WorkerConfig
from common.engine.build import BuiltEngine
from common.errors import ConfigError
from common.kv.ticket_table import TicketTable
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_sink, make_source
from common.transport.grpc_receiver import SERVICE_NAME
from common.worker.attach_session import AttachSession
from common.worker.departures import Departures
from common.worker.host import RoleParts, run_worker
from common.worker.map_timing import MapTiming
from common.worker.pool_blocks import PoolBlocks
from common.worker.registration import RegistrationServicer
from common.worker.worker import Worker
from decode_worker.arrivals import Arrivals
from decode_worker.moves import Moves
from decode_worker.servicer import DecodeWorkerServicer
from protos import worker_pb2_grpc


def run(config: WorkerConfig) -> int:
    """Runs until SIGTERM or SIGINT; returns the exit code. Raises ConfigError for another role."""
    if config.role not in (Role.DECODE, Role.BOTH):
        raise ConfigError("role", f"must be decode or both, is {config.role.value}")

    def make_role(
        worker: Worker,
        blocks: PoolBlocks,
        built: BuiltEngine,
        registration: RegistrationServicer,
        channels: PeerChannels,
    ) -> RoleParts:
        table = TicketTable(spec=built.kv_cache.spec, lease_s=config.lease_s)
        senders = make_source(config.transfer, blocks, channels, worker.counters)
        departures = Departures(
            worker,
            channels,
            senders.open,
            MapTiming(built.kv_cache.spec, built.engine.config.max_num_batched_tokens),
            lease_s=config.lease_s,
        )
        moves = Moves(worker, departures)
        arrivals = Arrivals(worker, table, moves)
        receiver = make_sink(config.transfer, arrivals.sink, arrivals.map, blocks, worker.counters, built.kv_cache.spec)

        def add_services(server: grpc.aio.Server, session: AttachSession) -> None:
            servicer = DecodeWorkerServicer(worker, arrivals, session, lambda: registration.current)
            worker_pb2_grpc.add_DecodeWorkerServicer_to_server(servicer, server)
            server.add_generic_rpc_handlers((receiver.handler(),))

        async def close() -> None:
            await departures.close()
            await senders.close()
            await channels.close()

        return RoleParts(
            taker=arrivals,
            add_services=add_services,
            service_names=("slipstream.v1.DecodeWorker", SERVICE_NAME),
            tickets=table,
            tasks=(arrivals.keep_leases(), departures.watch_sinks()),
            is_idle=lambda: moves.is_idle,
            close=close,
        )

    return run_worker(config, make_role)
