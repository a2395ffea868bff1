"""Every process is restarted, one by one, under load: nobody notices, and nothing is computed twice."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, worker_load

NUM_CALLERS = 4
MAX_EXTRA_PREFILL = 0.05


@dataclass(slots=True)
class Load:
    """Callers that ask one question after the other, each with a prompt of its own."""

    client: Client
    stop: threading.Event = field(default_factory=threading.Event)
    num_answers: int = 0
    num_prompt_tokens: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, seed: int) -> None:
        rng = random.Random(seed)
        while not self.stop.is_set():
            prompt = [rng.randrange(4000) for _ in range(rng.randrange(50, 400))]
            num_tokens = rng.randrange(4, 120)
            answer = self.client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=num_tokens)
            assert len(answer.token_ids) == num_tokens
            with self.lock:
                self.num_answers += 1
                self.num_prompt_tokens += len(prompt)


def two_free_ports_in_a_row() -> int:
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise AssertionError("no two free ports in a row")


@pytest.fixture
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    config = small_cluster_config(
        tiny_model,
        prefill=2,
        decode=2,
        routers=2,
        max_local_prefill_tokens=0,
        grpc_port=two_free_ports_in_a_row(),
    )
    with Cluster(config) as cluster:
        yield cluster


def test_a_rolling_restart_loses_nothing(cluster: Cluster) -> None:
    num_prefilled = {worker.id: -worker_load(worker).num_prefilled_tokens for worker in cluster.workers}
    with Client(cluster.grpc_addresses, timeout_s=60.0) as client, ThreadPoolExecutor(NUM_CALLERS) as work:
        load = Load(client)
        callers = [work.submit(load.run, seed) for seed in range(NUM_CALLERS)]
        try:
            for worker in cluster.workers:
                while client.drain(worker.id):
                    assert not any(caller.done() for caller in callers)
                    threading.Event().wait(0.05)
                num_prefilled[worker.id] += worker_load(worker).num_prefilled_tokens
                cluster.restart(worker.id)
                (new,) = (one for one in cluster.workers if one.id == worker.id)
                num_prefilled[worker.id] -= worker_load(new).num_prefilled_tokens
                wait_until_in_use(client, worker.id)
            for router in cluster.router_names:
                cluster.restart(router)
        finally:
            load.stop.set()
        for caller in callers:
            caller.result(timeout=60)
    num_computed = sum(num_prefilled.values()) + sum(
        worker_load(worker).num_prefilled_tokens for worker in cluster.workers
    )
    assert load.num_answers > 20
    assert num_computed <= (1 + MAX_EXTRA_PREFILL) * load.num_prompt_tokens, "something was computed twice"
    assert_nothing_left(cluster)


def wait_until_in_use(client: Client, worker_id: str) -> None:
    for _ in range(300):
        states = {worker.worker_id: (worker.state, worker.reachable) for worker in client.status().workers}
        if states.get(worker_id) == ("ready", True):
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{worker_id} does not come back: {states}")
