"""Connections on which nothing moved for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.net.server import KEEPALIVE_OPTIONS, MIN_PING_INTERVAL_MS, GrpcServer
from slipstream import AsyncClient, Client
from slipstream.connection import CHANNEL_OPTIONS
from tests.support.forgetful_proxy import ForgetfulProxy
from tests.support.scripted_router import ScriptedRouter

SILENCE_S = 0.4
# As often as a server takes it, and for more pings than it forgives when they come too often.
PING_INTERVAL_MS = MIN_PING_INTERVAL_MS + 300
NUM_PINGS = 4


@pytest.fixture
def proxy(router: ScriptedRouter) -> Iterator[ForgetfulProxy]:
    proxy = ForgetfulProxy(router.address)
    yield proxy
    proxy.close()


def test_a_forgotten_connection_costs_no_request(proxy: ForgetfulProxy, router: ScriptedRouter) -> None:
    with Client(proxy.address, silence_s=SILENCE_S, resume_s=5.0) as client:
        assert client.generate("x").text == "The sky is blue."
        proxy.forget()
        began_s = time.monotonic()
        assert [client.generate("x").text for _ in range(3)] == ["The sky is blue."] * 3
        assert time.monotonic() - began_s < SILENCE_S + 2.0
    assert proxy.num_connections == 2


async def test_a_forgotten_connection_costs_the_async_client_none(
    proxy: ForgetfulProxy, router: ScriptedRouter
) -> None:
    async with AsyncClient(proxy.address, silence_s=SILENCE_S) as client:
        await client.generate("x")
        proxy.forget()
        burst = await asyncio.gather(*(client.generate("x") for _ in range(20)))
        assert {answer.text for answer in burst} == {"The sky is blue."}


def test_the_pings_of_clients_and_of_the_fleet_are_rarer_than_servers_take() -> None:
    for options in (CHANNEL_OPTIONS, KEEPALIVE_OPTIONS):
        assert dict(options)["grpc.keepalive_time_ms"] > MIN_PING_INTERVAL_MS


async def test_an_idle_connection_is_kept_alive_and_its_pings_are_taken() -> None:
    server = GrpcServer()
    port = server.bind("127.0.0.1", 0)
    await server.start([])
    proxy = ForgetfulProxy(f"127.0.0.1:{port}")
    options = [*dict([*CHANNEL_OPTIONS, ("grpc.keepalive_time_ms", PING_INTERVAL_MS)]).items()]
    async with grpc.aio.insecure_channel(proxy.address, options) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
        num_bytes = proxy.num_bytes
        await asyncio.sleep(NUM_PINGS * PING_INTERVAL_MS / 1000 + 0.5)
        assert channel.get_state() is grpc.ChannelConnectivity.READY
        assert proxy.num_bytes - num_bytes >= NUM_PINGS * 2 * 17  # a ping and its answer are 17 bytes each
        await health.Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert proxy.num_connections == 1
    proxy.close()
    await server.stop(0)
