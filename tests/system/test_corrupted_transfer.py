"""One flipped bit between two workers is found by the checksum: the commit is refused, and the blocks come again."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from common.errors import SlipstreamError
from router.generation import RouteHint
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import BYTES_PER_TOKEN, assert_nothing_left
from tests.support.tampering_proxy import TamperingProxy

PROMPT = list(range(500, 700))
SINK = "decode-behind-proxy"


@pytest.fixture(scope="module")
def proxy(
    small_cluster: Cluster, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TamperingProxy]:
    """A further decode worker in the cluster's index, which others reach through the proxy alone."""
    port = free_port()
    output = tmp_path_factory.mktemp("sink") / "out.txt"
    with TamperingProxy(f"127.0.0.1:{port}") as proxy, output.open("wb") as file:
        flags = {
            "--model": tiny_model,
            "--served-model-name": "tiny",
            "--dtype": "float32",
            "--kv-memory": 1024 * 16 * BYTES_PER_TOKEN,
            "--num-threads": 1,
            "--worker-id": SINK,
            "--kv-transports": "grpc",  # what passes the proxy
            "--port": port,
            "--advertise": proxy.address,
            "--index-url": small_cluster.index_url,
        }
        arguments = [str(part) for flag in flags.items() for part in flag]
        process = subprocess.Popen([sys.executable, "-m", "slipstream", "decode", *arguments], stdout=file)
        try:
            wait_ready(process, output)
            wait_known(small_cluster)
            yield proxy
        finally:
            process.terminate()
            process.wait(timeout=20)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_ready(process: subprocess.Popen[bytes], output: Path) -> None:
    deadline_s = time.monotonic() + 60
    while "READY" not in output.read_text():
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.05)
    assert json.loads(output.read_text().partition("READY ")[2])["worker_id"] == SINK


def wait_known(cluster: Cluster) -> None:
    """Until the router has a stream to the worker."""
    deadline_s = time.monotonic() + 30
    with Client(cluster.grpc_addresses) as client:
        while not any(worker.worker_id == SINK and worker.reachable for worker in client.status().workers):
            assert time.monotonic() < deadline_s, "the router does not know the worker behind the proxy"
            time.sleep(0.1)


@pytest.fixture
def client(small_cluster: Cluster) -> Iterator[Client]:
    with Client(small_cluster.grpc_addresses, timeout_s=60.0) as client:
        yield client


def test_a_flipped_bit_costs_a_second_transfer(small_cluster: Cluster, proxy: TamperingProxy, client: Client) -> None:
    expected = client.generate(PROMPT, max_tokens=16, temperature=0.0, ignore_eos=True)
    proxy.num_to_tamper = 1
    proxy.commit_codes.clear()
    hint = RouteHint(decode_worker=SINK)
    answer = client.generate(PROMPT, max_tokens=16, temperature=0.0, ignore_eos=True, route=hint)

    assert proxy.num_to_tamper == 0
    assert proxy.commit_codes == [grpc.StatusCode.DATA_LOSS, grpc.StatusCode.OK]
    assert answer.token_ids == expected.token_ids
    assert answer.route.attempts == 2
    assert_nothing_left(small_cluster)


def test_a_transfer_that_never_arrives_whole_fails_the_request(
    small_cluster: Cluster, proxy: TamperingProxy, client: Client
) -> None:
    client.reset_prefix_cache()
    proxy.num_to_tamper = 1000
    proxy.commit_codes.clear()
    # Every attempt brings its first token: a client that resumes would come to the end one token at a time.
    try:
        with (
            Client(small_cluster.grpc_addresses, resume_s=0.0) as impatient,
            pytest.raises(SlipstreamError, match="gave up"),
        ):
            impatient.generate(PROMPT, max_tokens=16, route=RouteHint(decode_worker=SINK))
    finally:
        proxy.num_to_tamper = 0
    assert proxy.commit_codes and set(proxy.commit_codes) == {grpc.StatusCode.DATA_LOSS}
    assert_nothing_left(small_cluster)
