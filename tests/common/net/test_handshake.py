"""Processes that can't agree on TLS say what to do about it, over real connections."""

from __future__ import annotations

import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.net.handshake import HandshakeLog, explain_handshake
from common.net.peer_role import PeerRole
from common.net.server import GrpcServer, open_channel
from common.net.tls import TlsIdentity
from common.net.tls_folder import load_identity
from tests.support.certificates import make_expired, make_fleet


@asynccontextmanager
async def worker(tls: TlsIdentity | None) -> AsyncIterator[str]:
    server = GrpcServer(tls=tls)
    port = server.bind("127.0.0.1", 0)
    await server.start([])
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


async def failure(address: str, tls: TlsIdentity | None) -> grpc.aio.AioRpcError:
    async with open_channel(address, tls) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return caught.value


def unchecked(folder: Path, ca: Path) -> TlsIdentity:
    """What a folder holds, as a process that never looks at it would take it."""
    certificate, key = ((folder / name).read_bytes() for name in ("tls.crt", "tls.key"))
    return TlsIdentity(folder=folder, ca=ca.read_bytes(), certificate=certificate, key=key)


@pytest.mark.parametrize("side", ["expired", "foreign", "for a router only", "plain"])
async def test_what_is_wrong_with_the_server(tmp_path: Path, side: str) -> None:
    fleet = make_fleet(tmp_path / "fleet")
    router = load_identity(str(fleet), PeerRole.ROUTER)
    shutil.copytree(fleet, tmp_path / "expired")
    servers = {
        "expired": (unchecked(make_expired(tmp_path / "expired") / "worker", fleet / "ca.crt"), "has expired: renew"),
        "foreign": (load_identity(str(make_fleet(tmp_path / "foreign")), PeerRole.WORKER), "not of the CA in ca.crt"),
        "for a router only": (router, "one of a worker worker.slipstream.internal"),
        "plain": (None, "no TLS is spoken there"),
    }
    tls, said = servers[side]
    async with worker(tls) as address:
        error = await failure(address, router)
    explained = explain_handshake(error.details() or "")
    assert explained is not None and said in explained


@pytest.mark.parametrize("side", ["expired", "foreign", "plain"])
async def test_what_is_wrong_with_the_caller(tmp_path: Path, side: str) -> None:
    fleet = make_fleet(tmp_path / "fleet")
    shutil.copytree(fleet, tmp_path / "expired")
    callers = {
        "expired": unchecked(make_expired(tmp_path / "expired") / "router", fleet / "ca.crt"),
        "foreign": unchecked(make_fleet(tmp_path / "foreign") / "router", fleet / "ca.crt"),
        "plain": None,
    }
    async with worker(load_identity(str(fleet), PeerRole.WORKER)) as address:
        error = await failure(address, callers[side])
    explained = explain_handshake(error.details() or "")
    assert explained is not None and "(--tls-dir) on at one end only, or the certificate here expired" in explained


async def test_a_peer_that_is_away_is_not_blamed_on_certificates() -> None:
    async with worker(None) as address:
        pass
    error = await failure(address, None)
    assert explain_handshake(error.details() or "") is None


async def test_a_reason_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    router = load_identity(str(make_fleet(tmp_path)), PeerRole.ROUTER)
    log = HandshakeLog(logging.getLogger("test"), "worker w")
    async with worker(None) as address:
        error = await failure(address, router)
    log.failed(error)
    log.failed(error)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["worker w"]
