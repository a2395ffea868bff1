"""The health service that every process has."""

from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.net.server import GrpcServer, open_channel

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def test_a_process_lives_whether_its_services_are_ready_or_not() -> None:
    server = GrpcServer()
    port = server.bind("127.0.0.1", 0)
    await server.start(["slipstream.v1.Inference", "slipstream.v1.Admin"])
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            check = health_pb2_grpc.HealthStub(channel).Check

            async def states() -> set[int]:
                names = ("slipstream.v1.Inference", "slipstream.v1.Admin", "grpc.health.v1.Health")
                return {(await check(health_pb2.HealthCheckRequest(service=name), timeout=5)).status for name in names}

            async def is_alive() -> bool:
                return (await check(health_pb2.HealthCheckRequest(), timeout=5)).status == SERVING

            assert await states() == {NOT_SERVING}
            assert await is_alive()
            await server.set_serving(True)
            assert await states() == {SERVING}
            assert await is_alive()
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await check(health_pb2.HealthCheckRequest(service="slipstream.v1.Wibble"), timeout=5)
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
            await server.set_serving(False)
            assert await states() == {NOT_SERVING}
            assert await is_alive()
    finally:
        await server.stop(0)
