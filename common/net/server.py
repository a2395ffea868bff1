"""A gRPC server with what every process has: health, reflection, error mapping, explicit limits."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from common.errors import ConfigError
from common.net.guard import HEALTH_SERVICE, REFLECTION_SERVICE, Guard
from common.net.interceptor import ErrorInterceptor
from common.net.peer_role import PeerRole
from common.net.tls import TlsIdentity

# The health service's name for the process as a whole.
ALIVE = ""
MAX_MESSAGE_BYTES = 64 * 2**20
# Calls that one server holds at the same time; streams are calls too. A limit against floods: routers and workers
# refuse far earlier.
MAX_CONCURRENT_CALLS = 8192
# Whoever pings more often, is told to go away ("too_many_pings").
MIN_PING_INTERVAL_MS = 5_000
KEEPALIVE_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]
# For bulk bytes: the default frames of 16 KiB, read 8 KiB at a time, cost a third of the rate.
BULK_OPTIONS: list[tuple[str, int]] = [
    ("grpc.http2.max_frame_size", 4 * 2**20),
    ("grpc.experimental.tcp_min_read_chunk_size", 256 * 2**10),
    # A window of fixed size: gRPC's own estimate grows with what the receiver is late, and its memory with that.
    ("grpc.http2.lookahead_bytes", 8 * 2**20),
    ("grpc.http2.bdp_probe", 0),
]


class GrpcServer:
    """Owned by the process's event loop. Bind first, add servicers, start, then `set_serving(True)`.

    With `tls`, peers must show a certificate of its CA, unless they prove otherwise who they are
    (`require_client_certificate=False`); `guard` says what each may call. `bulk`: large
    messages come here; each connection then holds a larger buffer.
    """

    def __init__(
        self,
        *,
        tls: TlsIdentity | None = None,
        guard: Guard | None = None,
        require_client_certificate: bool = True,
        bulk: bool = False,
    ) -> None:
        self._credentials = (
            None if tls is None else tls.server_credentials(require_client_certificate=require_client_certificate)
        )
        self.server: grpc.aio.Server = grpc.aio.server(
            interceptors=[ErrorInterceptor(guard)],
            maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
            options=[
                # Two processes must never share a port silently.
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_INTERVAL_MS),
                *KEEPALIVE_OPTIONS,
                *(BULK_OPTIONS if bulk else ()),
            ],
        )
        self._health = health_aio.HealthServicer()
        self._service_names: tuple[str, ...] = ()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.server)

    def bind(self, host: str, port: int, *, field: str = "port") -> int:
        """The bound port. Raises ConfigError that names `field` when the port is taken."""
        try:
            bound = self._add_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ConfigError(field, f"can't listen on {host}:{port}: {error}") from None
        if bound == 0:
            raise ConfigError(field, f"can't listen on {host}:{port}: is another process using it?")
        return int(bound)

    async def start(self, service_names: Sequence[str]) -> None:
        names = [*service_names, REFLECTION_SERVICE, HEALTH_SERVICE]
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

    def _add_port(self, address: str) -> int:
        if self._credentials is None:
            return self.server.add_insecure_port(address)
        return self.server.add_secure_port(address, self._credentials)


def open_channel(address: str, tls: TlsIdentity | None = None, *, bulk: bool = False) -> grpc.aio.Channel:
    """A channel to a worker: made once, reused, kept alive when idle.

    With `tls`, who answers must have a worker's certificate, whatever the address.
    """
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        # A proxy in the environment is for the world outside, not for the fleet.
        ("grpc.enable_http_proxy", 0),
        *KEEPALIVE_OPTIONS,
        *(BULK_OPTIONS if bulk else ()),
    ]
    if tls is None:
        return grpc.aio.insecure_channel(address, options=options)
    options.append(("grpc.ssl_target_name_override", PeerRole.WORKER.dns_name))
    return grpc.aio.secure_channel(address, tls.channel_credentials(), options=options)
