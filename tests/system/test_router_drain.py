"""A router that is told to stop says so, takes nothing more, and finishes its streams or hands them on."""

from __future__ import annotations

import http.client
import json
import signal
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from slipstream.client import Client
from slipstream.generation import GenerationBuilder
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config

DRAIN_S = 2.5
NUM_TOKENS = 1900
PROMPT = list(range(300, 400))
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    with Cluster(small_cluster_config(tiny_model, routers=2, router_drain_timeout_s=DRAIN_S)) as cluster:
        yield cluster


@pytest.fixture
def connections() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connection_to(http_url: str) -> http.client.HTTPConnection:
    address = urllib.parse.urlsplit(http_url)
    assert address.hostname is not None
    return http.client.HTTPConnection(address.hostname, address.port, timeout=30)


def test_a_draining_router(cluster: Cluster, connections: ExitStack) -> None:
    address, http_url = cluster.grpc_addresses[0], cluster.http_urls[0]
    endless = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "seed": 3}
    body = {"prompt": PROMPT, "stream": True, **endless}
    streaming = connections.enter_context(closing(connection_to(http_url)))
    streaming.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    events = streaming.getresponse()
    assert events.readline().startswith(b"data: {")
    with Client(cluster.grpc_addresses) as client, Client(address) as bound, grpc.insecure_channel(address) as channel:
        stream = client.stream(PROMPT, **endless)  # type: ignore[arg-type]
        builder = GenerationBuilder()
        builder.add(next(stream))
        cluster.kill("router-0", signal.SIGTERM)
        told_s = time.monotonic()
        health = health_pb2_grpc.HealthStub(channel)
        asked = health_pb2.HealthCheckRequest(service="slipstream.v1.Inference")
        while health.Check(asked, timeout=5).status != NOT_SERVING:
            assert time.monotonic() - told_s < DRAIN_S
        assert ready_of(http_url) == (503, "draining")
        with pytest.raises(Exception, match="draining"):
            bound.generate(PROMPT, max_tokens=1)
        refused = connections.enter_context(closing(connection_to(http_url)))
        refused.request("POST", "/v1/completions", json.dumps({"prompt": "x"}), {"content-type": "application/json"})
        answer = refused.getresponse()
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert "draining" in json.loads(answer.read())["error"]["message"]
        # Elsewhere at once, although this client has been to the draining router before.
        assert client.generate(PROMPT, max_tokens=1).num_resumes == 0
        for delta in stream:
            builder.add(delta)
        got = builder.build()
    # It ran longer than the router may drain: its end came from the other one.
    assert got.num_resumes == 1
    assert len(got.token_ids) == NUM_TOKENS
    last = [line for line in events.read().split(b"\n\n") if line][-1]
    assert b"go on at another one" in last
    assert cluster.child("router-0").wait_until(told_s + DRAIN_S + 8.0)
    assert cluster.child("router-0").exit_code == 0
    assert_nothing_left(cluster)


def test_a_stream_that_ends_in_time_ends_where_it_began(cluster: Cluster) -> None:
    with Client(cluster.grpc_addresses) as client:
        stream = client.stream(PROMPT, max_tokens=30, ignore_eos=True)
        first = next(stream)
        cluster.kill("router-0", signal.SIGTERM)
        rest = list(stream)
    assert rest[-1].num_resumes == 0
    assert sum(len(choice.token_ids) for delta in (first, *rest) for choice in delta.choices) == 30
    assert cluster.child("router-0").wait_until(time.monotonic() + 10.0)


def ready_of(http_url: str) -> tuple[int, str]:
    with closing(connection_to(http_url)) as connection:
        connection.request("GET", "/ready")
        response = connection.getresponse()
        return response.status, json.loads(response.read())["reason"]
