"""A fleet is renewed one process at a time: workers of the protocol version before serve beside those of this one."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from common.config import Role
from router.generation import RouteHint
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.old_worker_proxy import old_worker_proxy
from tests.support.small_cluster import BYTES_PER_TOKEN, assert_nothing_left, small_cluster_config

PROMPT = list(range(500, 900))
NUM_TOKENS = 24


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def old_worker(cluster: Cluster, model: Path, role: Role) -> Iterator[str]:
    """A worker that registers with the cluster's index, and is reached through the messages of version 1 only."""
    port, proxy_port = free_port(), free_port()
    assert cluster.index_url is not None
    command = [sys.executable, "-m", "slipstream", role.value, "--model", str(model), "--served-model-name", "tiny"]
    command += ["--dtype", "float32", "--kv-memory", str(1024 * 16 * BYTES_PER_TOKEN), "--num-threads", "1"]
    command += ["--index-url", cluster.index_url, "--worker-id", f"old-{role.value}", "--port", str(port)]
    command += ["--advertise", f"127.0.0.1:{proxy_port}"]
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with old_worker_proxy(proxy_port, lambda: f"127.0.0.1:{port}"):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            thread.start()
            assert ready.wait(10)
            assert process.stdout is not None and process.stdout.readline().startswith("READY")
            yield f"old-{role.value}"
        finally:
            process.terminate()
            process.wait(40)
            stop.set()
            thread.join()


@pytest.mark.parametrize("role", [Role.PREFILL, Role.DECODE])
def test_a_worker_of_the_version_before_serves(tiny_model: Path, role: Role) -> None:
    config = small_cluster_config(tiny_model, prefill=1, decode=1, max_local_prefill_tokens=0)
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(config))
        client = stack.enter_context(Client(cluster.grpc_addresses, timeout_s=60.0))
        expected = client.generate(PROMPT, temperature=0.0, ignore_eos=True, max_tokens=NUM_TOKENS)
        name = stack.enter_context(old_worker(cluster, tiny_model, role))
        hint = RouteHint(prefill_worker=name) if role is Role.PREFILL else RouteHint(decode_worker=name)
        wait_until_up(client, name)
        for prompt in (PROMPT, PROMPT[:100], [*PROMPT, *PROMPT]):
            answer = client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=NUM_TOKENS, route=hint)
            assert name in (answer.route.prefill_worker, answer.route.decode_worker)
            assert answer.route.attempts == 1
            if prompt == PROMPT:
                assert answer.token_ids == expected.token_ids
        assert_nothing_left(cluster)


def wait_until_up(client: Client, name: str) -> None:
    for _ in range(200):
        if any(worker.worker_id == name and worker.reachable for worker in client.status().workers):
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{name} does not come up: {client.status()}")
