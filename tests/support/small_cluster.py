"""Clusters with the tiny model: how they are started, and what must hold when they are idle."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import grpc

from common.config import DType, EngineConfig, Role
from protos import admin_pb2, admin_pb2_grpc, worker_pb2
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster, ClusterWorker
from tests.support import watched_program

WATCHED_PROGRAM = (sys.executable, watched_program.__file__)
RPC_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 20.0
BYTES_PER_TOKEN = 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, head_dim, float32


def small_engine(model: Path, *, num_blocks: int = 2048, **settings: Any) -> EngineConfig:
    """An engine of the tiny model whose pool has `num_blocks` blocks of 16 tokens."""
    return EngineConfig(
        model=str(model),
        served_model_name="tiny",
        dtype=DType.FLOAT32,
        kv_memory=str(num_blocks * 16 * BYTES_PER_TOKEN),
        num_threads=1,
        **settings,
    )


def small_cluster_config(model: Path, **settings: Any) -> ClusterConfig:
    """Free ports, one thread a worker, and no probes among what tests count; `settings` are ClusterConfig's."""
    defaults = {"engine": small_engine(model), "grpc_port": 0, "http_port": 0, "probe_interval_s": 0.0}
    return ClusterConfig(**{**defaults, **settings})


def worker_load(worker: ClusterWorker) -> worker_pb2.LoadReport:
    with grpc.insecure_channel(worker.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        load: worker_pb2.LoadReport = admin.Status(admin_pb2.StatusRequest(), timeout=RPC_TIMEOUT_S).workers[0].load
        return load


def check_integrity(worker: ClusterWorker) -> admin_pb2.CheckIntegrityResponse:
    with grpc.insecure_channel(worker.address) as channel:
        admin = admin_pb2_grpc.AdminStub(channel)
        report: admin_pb2.CheckIntegrityResponse
        report = admin.CheckIntegrity(admin_pb2.CheckIntegrityRequest(), timeout=RPC_TIMEOUT_S)
        return report


def assert_nothing_left(
    cluster: Cluster, *, except_for: tuple[str, ...] = (), timeout_s: float = IDLE_TIMEOUT_S
) -> None:
    """Every block of every pool is free or cached, nothing is reserved or running, and the books are in order.

    Waits up to `timeout_s` for what ends a moment after the last answer. `except_for` names workers that are gone.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        reports = {one.id: check_integrity(one) for one in cluster.workers if one.id not in except_for}
        left = {
            worker_id: str(report).replace("\n", ", ")
            for worker_id, report in reports.items()
            if report.num_used_blocks
            or report.num_quarantined_blocks
            or report.num_used_host_blocks
            or report.num_reservations
            or report.num_requests
            or report.num_free_blocks != report.num_blocks
        }
        if not left:
            return
        assert time.monotonic() < deadline_s, f"not idle after {timeout_s:g} s: {left}"
        time.sleep(0.05)


def worker_of_role(cluster: Cluster, role: Role) -> ClusterWorker:
    return next(worker for worker in cluster.workers if worker.role is role)
