"""A fleet that gives no answers is not ready and lives; what has become of a worker is told."""

from __future__ import annotations

import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import small_cluster_config

# A silence that is no loss yet, for as long as the test takes: only probes tell.
LEASE_S = 120.0
TIMEOUT_S = 60.0
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    with Cluster(small_cluster_config(tiny_model, lease_s=LEASE_S, probe_interval_s=0.5)) as cluster:
        yield cluster


def get(cluster: Cluster, path: str) -> int:
    try:
        with urllib.request.urlopen(cluster.http_urls[0] + path, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def health(cluster: Cluster, service: str) -> int:
    with grpc.insecure_channel(cluster.grpc_addresses[0]) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=10).status)


def states(cluster: Cluster) -> dict[str, str]:
    with Client(cluster.grpc_addresses) as client:
        return {worker.worker_id: worker.state for worker in client.status().workers}


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def test_answers_stop_and_come_again(cluster: Cluster) -> None:
    assert (get(cluster, "/ready"), get(cluster, "/health")) == (200, 200)
    assert states(cluster) == {"prefill-0": "ready", "decode-0": "ready"}
    cluster.kill("decode-0", signal.SIGSTOP)
    wait_for(lambda: get(cluster, "/ready") == 503)
    assert get(cluster, "/health") == 200
    assert health(cluster, "slipstream.v1.Inference") == NOT_SERVING
    assert health(cluster, "") == SERVING
    assert states(cluster)["decode-0"] == "not_ready"
    cluster.kill("decode-0", signal.SIGCONT)
    wait_for(lambda: get(cluster, "/ready") == 200)
    assert health(cluster, "slipstream.v1.Inference") == SERVING
    wait_for(lambda: set(states(cluster).values()) == {"ready"})
    cluster.kill("decode-0", signal.SIGKILL)
    wait_for(lambda: get(cluster, "/ready") == 503)
    assert get(cluster, "/health") == 200
    assert states(cluster)["decode-0"] == "dead"
    cluster.kill("prefill-0", signal.SIGTERM)
    wait_for(lambda: states(cluster)["prefill-0"] == "removed")
