"""A fleet with certificates: it serves, over TLS alone, and only those who have a certificate for what they ask."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

import slipstream
from common.config import ProcessConfig, Role
from common.net.peer_role import PeerRole
from common.net.tls import TlsIdentity
from common.net.tls_folder import load_identity
from protos import admin_pb2, admin_pb2_grpc, transfer_pb2, transfer_pb2_grpc, worker_pb2, worker_pb2_grpc
from slipstream import cli
from slipstream.connection import HandshakeError
from slipstream.launcher import Cluster
from tests.support.certificates import make_expired, make_fleet
from tests.support.small_cluster import small_cluster_config, worker_of_role

TIMEOUT_S = 10.0
DENIED = grpc.StatusCode.PERMISSION_DENIED
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
START_TIMEOUT_S = 90.0
SLIPSTREAM = (sys.executable, "-m", "slipstream")


@pytest.fixture(scope="module")
def tls_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def foreign_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of another CA, for the same names."""
    return make_fleet(tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def cluster(tiny_model: Path, tls_dir: Path) -> Iterator[Cluster]:
    process = ProcessConfig(tls_dir=str(tls_dir))
    with Cluster(small_cluster_config(tiny_model, process=process, max_local_prefill_tokens=0)) as cluster:
        yield cluster


def channel_to(address: str, identity: TlsIdentity | None, server: PeerRole) -> grpc.Channel:
    if identity is None:
        return grpc.insecure_channel(address)
    options = [("grpc.ssl_target_name_override", server.dns_name)]
    return grpc.secure_channel(address, identity.channel_credentials(), options)


def code_of(call: Any, *arguments: Any) -> grpc.StatusCode | None:
    """The status of a call, None when it was answered."""
    try:
        answer = call(*arguments, timeout=TIMEOUT_S)
        if hasattr(answer, "__iter__") and not hasattr(answer, "DESCRIPTOR"):
            list(answer)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()  # type: ignore[attr-defined]
        return code
    return None


def control_calls(channel: grpc.Channel) -> dict[str, grpc.StatusCode | None]:
    """What a decode worker answers to each kind of call."""
    decode, transfer = worker_pb2_grpc.DecodeWorkerStub(channel), transfer_pb2_grpc.KvTransferStub(channel)
    admin, registration = admin_pb2_grpc.AdminStub(channel), worker_pb2_grpc.RegistrationStub(channel)
    return {
        "Attach": code_of(decode.Attach, iter([worker_pb2.AttachRequest()])),
        "Reserve": code_of(decode.Reserve, worker_pb2.ReserveRequest()),
        "Abort": code_of(decode.Abort, worker_pb2.AbortRequest(ticket_id="x")),
        "Release": code_of(decode.Release, worker_pb2.ReleaseRequest(ticket_id="x")),
        "Map": code_of(transfer.Map, transfer_pb2.MapRequest(ticket_id="x")),
        "Push": code_of(transfer.Push, iter([transfer_pb2.PushFrame(payload=b"x")])),
        "Commit": code_of(transfer.Commit, transfer_pb2.CommitRequest(ticket_id="x")),
        "Fail": code_of(transfer.Fail, transfer_pb2.FailRequest(ticket_id="x")),
        "Status": code_of(admin.Status, admin_pb2.StatusRequest()),
        "ResetPrefixCache": code_of(admin.ResetPrefixCache, admin_pb2.ResetPrefixCacheRequest()),
        "Drain": code_of(admin.Drain, admin_pb2.DrainRequest(undo=True)),
        "Describe": code_of(registration.Describe, worker_pb2.DescribeRequest()),
    }


def test_a_fleet_with_certificates_serves(cluster: Cluster, tls_dir: Path) -> None:
    with slipstream.Client(cluster.grpc_addresses, tls_dir=str(tls_dir)) as client:
        answer = client.generate([5, 6, 7] * 20, max_tokens=4, temperature=0.0, ignore_eos=True)
        status = client.status()
    assert answer.usage.generated_tokens == 4
    assert answer.route.transferred_blocks > 0  # so KV went from worker to worker, too
    assert {worker.role for worker in status.workers} == {"prefill", "decode"}


@pytest.mark.parametrize("role", [PeerRole.CLIENT, PeerRole.OPERATOR, PeerRole.WORKER, PeerRole.ROUTER])
def test_a_worker_serves_whom_it_concerns(cluster: Cluster, tls_dir: Path, role: PeerRole) -> None:
    address = worker_of_role(cluster, Role.DECODE).address
    with channel_to(address, load_identity(str(tls_dir), role), PeerRole.WORKER) as channel:
        codes = control_calls(channel)
    transfer = {"Map", "Push", "Commit", "Fail"}
    keeping = {"Status", "ResetPrefixCache", "Drain", "Describe"}
    allowed = {
        PeerRole.CLIENT: set[str](),
        PeerRole.OPERATOR: keeping,
        PeerRole.WORKER: transfer,
        PeerRole.ROUTER: codes.keys() - transfer,
    }[role]
    assert {name for name, code in codes.items() if code is DENIED} == codes.keys() - allowed, codes


@pytest.mark.parametrize("caller", ["plain", "no certificate", "foreign certificate"])
def test_who_has_no_certificate_of_the_ca_calls_nothing(
    cluster: Cluster, tls_dir: Path, foreign_dir: Path, caller: str
) -> None:
    own, foreign = (load_identity(str(one), PeerRole.ROUTER) for one in (tls_dir, foreign_dir))
    identity = {
        "plain": None,
        "no certificate": TlsIdentity(folder=tls_dir, ca=own.ca),
        "foreign certificate": TlsIdentity(folder=tls_dir, ca=own.ca, certificate=foreign.certificate, key=foreign.key),
    }[caller]
    for worker in cluster.workers:
        with channel_to(worker.address, identity, PeerRole.WORKER) as channel:
            codes = control_calls(channel)
        assert set(codes.values()) == {UNAVAILABLE}, codes
    with channel_to(cluster.grpc_addresses[0], identity, PeerRole.ROUTER) as channel:
        assert code_of(admin_pb2_grpc.AdminStub(channel).Status, admin_pb2.StatusRequest()) is UNAVAILABLE


def test_a_client_may_ask_and_not_see_the_fleet(cluster: Cluster, tls_dir: Path) -> None:
    with slipstream.Client(cluster.grpc_addresses, tls_dir=str(tls_dir / "client")) as client:
        assert client.models()[0].id == "tiny"
        with pytest.raises(slipstream.PermissionDeniedError, match="operator"):
            client.status()


def test_a_client_learns_what_is_wrong(cluster: Cluster, tls_dir: Path, foreign_dir: Path) -> None:
    with (
        slipstream.Client(cluster.grpc_addresses, tls_dir=str(foreign_dir)) as client,
        pytest.raises(HandshakeError, match=r"not of the CA in ca.crt"),
    ):
        client.models()
    with slipstream.Client(cluster.grpc_addresses) as client, pytest.raises(HandshakeError, match="--tls-dir"):
        client.models()


def https(cluster: Cluster, tls_dir: Path, role: PeerRole | None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(tls_dir / "ca.crt"))
    if role is not None:
        context.load_cert_chain(tls_dir / role / "tls.crt", tls_dir / role / "tls.key")
    return httpx.Client(base_url=cluster.http_urls[0], verify=context, timeout=TIMEOUT_S)


def test_http_asks_for_certificates_too(cluster: Cluster, tls_dir: Path) -> None:
    assert cluster.http_urls[0].startswith("https://")
    asked = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True}
    statuses = {}
    for role in (None, PeerRole.CLIENT, PeerRole.OPERATOR, PeerRole.WORKER, PeerRole.ROUTER):
        with https(cluster, tls_dir, role) as client:
            statuses[role] = (
                client.post("/v1/completions", json=asked).status_code,
                client.get("/metrics").status_code,
                client.get("/ready").status_code,
            )
    assert statuses == {
        None: (401, 401, 200),
        PeerRole.CLIENT: (200, 403, 200),
        PeerRole.OPERATOR: (200, 200, 200),
        PeerRole.WORKER: (403, 403, 200),
        PeerRole.ROUTER: (403, 403, 200),
    }


def test_commands_take_the_folder(cluster: Cluster, tls_dir: Path) -> None:
    command = [*SLIPSTREAM, "status", "--target", cluster.grpc_addresses[0]]
    known = subprocess.run([*command, "--tls-dir", str(tls_dir)], capture_output=True, text=True, timeout=60)
    assert known.returncode == 0, known.stderr
    assert "decode-0" in known.stdout
    unknown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert unknown.returncode == 1
    assert "--tls-dir" in unknown.stderr and "slipstream up" not in unknown.stderr


def test_the_commands_that_make_a_fleet_with_certificates(tiny_model: Path, tmp_path: Path) -> None:
    """As a person would: make them, start everything, and be answered."""
    folder, output = tmp_path / "tls", tmp_path / "up.txt"
    made = subprocess.run([*SLIPSTREAM, "certs", str(folder)], capture_output=True, text=True, timeout=60)
    assert made.returncode == 0 and str(folder / "worker") in made.stdout, made.stderr
    flags = ["--tls-dir", str(folder), "--model", str(tiny_model), "--kv-memory", "16MiB"]
    flags += ["--http-port", "0", "--grpc-port", "0", "--prompt", "Hello"]
    with output.open("wb") as file:
        process = subprocess.Popen([*SLIPSTREAM, "up", *flags], stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while " generated · " not in (shown := output.read_text(errors="replace")):  # what the first answer took
            assert process.poll() is None and time.monotonic() < deadline_s, shown
            time.sleep(0.1)
        assert "https://" in shown
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("command", ["router", "prefill", "decode", "up"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [("expired", "expired on"), ("absent", "has no ca.crt"), ("client", "and not for")],
)
def test_certificates_that_can_t_be_used_stop_a_command_at_once(
    tmp_path: Path, command: str, kind: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = {
        "expired": lambda: make_expired(tmp_path),
        "absent": lambda: tmp_path / "nowhere",
        "client": lambda: make_fleet(tmp_path) / "client",
    }[kind]()
    flags = ["--tls-dir", str(folder), "--index-url", "redis://127.0.0.1:1"]
    flags += [] if command in ("prefill", "decode") else ["--grpc-port", "0", "--http-port", "0"]
    assert cli.run([command, *flags]) == 2
    shown = capsys.readouterr().err
    assert "tls_dir: " in shown and message in shown
