"""A gRPC server with what every process has: health, reflection, error mapping, explicit limits."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from common.errors import ConfigError
from common.net.interceptor import ErrorInterceptor

# The health service's name for the process as a whole.
ALIVE = ""
MAX_MESSAGE_BYTES = 64 * 2**20
# Whoever pings more often, is told to go away ("too_many_pings").
MIN_PING_INTERVAL_MS = 5_000
KEEPALIVE_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]


class GrpcServer:
    """Owned by the process's event loop. Bind first, add servicers, start, then `set_serving(True)`."""

    def __init__(self) -> None:
        self.server: grpc.aio.Server = grpc.aio.server(
            interceptors=[ErrorInterceptor()],
            options=[
                # Two processes must never share a port silently.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
                *KEEPALIVE_OPTIONS,
            ],
        )
        self._health = health_aio.HealthServicer()
        self._service_names: tuple[str, ...] = ()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    def bind(self, host: str, port: int, *, field: str = "port") -> int:
        """The bound port. Raises ConfigError that names `field` when the port is taken."""
        try:
            bound = self.server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ConfigError(field, f"can't listen on {host}:{port}: {error}") from None
        if bound == 0:
            raise ConfigError(field, f"can't listen on {host}:{port}: is another process using it?")
        return int(bound)

    async def start(self, service_names: Sequence[str]) -> None:
        names = [*service_names, reflection.SERVICE_NAME, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name]
        reflection.enable_server_reflection(names, self.server)
        self._service_names = tuple(names)
        await self.set_serving(False)
        await self._health.set(ALIVE, health_pb2.HealthCheckResponse.SERVING)
        await self.server.start()

    async def set_serving(self, serving: bool) -> None:
        """Health of each service by its full name. That of the process ("") says only that it lives."""
        kinds = health_pb2.HealthCheckResponse
        for name in self._service_names:
            await self._health.set(name, kinds.SERVING if serving else kinds.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        await self._health.enter_graceful_shutdown()
        await self.server.stop(grace_s)


def open_channel(address: str) -> grpc.aio.Channel:
    """A channel to a peer: made once, reused, kept alive when idle."""
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            # A proxy in the environment is for the world outside, not for the fleet.
            ("grpc.enable_http_proxy", 0),
            *KEEPALIVE_OPTIONS,
        ],
    )
