"""A worker that dies costs a retry, not the request."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from common.config import Role
from router.generation import RouteHint
from slipstream.client import Client
from slipstream.generation import Generation
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, worker_load

NUM_TOKENS = 1500


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    with Cluster(small_cluster_config(tiny_model, prefill=2, decode=2, max_local_prefill_tokens=0)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.grpc_addresses, timeout_s=60.0) as client:
        yield client


def wait_until_preferred(client: Client, prompt: list[int], worker_id: str) -> None:
    """The index tells routers of a cached prefix a moment after it was computed."""
    deadline_s = time.monotonic() + 10
    while client.generate(prompt, max_tokens=1).route.prefill_worker != worker_id:
        assert time.monotonic() < deadline_s, f"{worker_id} was not chosen for its cached prefix"
        time.sleep(0.1)


def in_background(work: ThreadPoolExecutor, client: Client, prompt: list[int], **options: int) -> Future[Generation]:
    return work.submit(
        lambda: client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=options["max_tokens"])
    )


def test_a_prefill_worker_dies_before_the_first_token(cluster: Cluster, client: Client) -> None:
    victim, other = (worker for worker in cluster.workers if worker.role is Role.PREFILL)
    prompt = list(range(1000, 2024))
    hint = RouteHint(prefill_worker=victim.id)
    expected = client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=8, route=hint)
    assert expected.route.prefill_worker == victim.id
    wait_until_preferred(client, prompt, victim.id)

    cluster.kill(victim.id, signal.SIGSTOP)  # it takes the request and does nothing
    with ThreadPoolExecutor(1) as work:
        answer = in_background(work, client, prompt, max_tokens=8)
        decode = [worker for worker in cluster.workers if worker.role is Role.DECODE]
        deadline_s = time.monotonic() + 10
        while not any(worker_load(worker).num_reservations for worker in decode):
            assert time.monotonic() < deadline_s, "decode reserved nothing"
            time.sleep(0.01)
        assert not answer.done()
        cluster.kill(victim.id, signal.SIGKILL)
        generation = answer.result(timeout=30)

    assert generation.token_ids == expected.token_ids
    assert generation.route.attempts == 2
    assert generation.route.prefill_worker == other.id
    assert_nothing_left(cluster, except_for=(victim.id,))


def test_a_decode_worker_dies_in_mid_answer(cluster: Cluster, client: Client) -> None:
    prompt = list(range(3000, 3200))
    expected = client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=NUM_TOKENS)
    dead = {worker.id for worker in cluster.workers if cluster.child(worker.id).exit_code is not None}
    decode = [worker for worker in cluster.workers if worker.role is Role.DECODE]
    begun = threading.Event()
    token_ids: list[int] = []
    attempts = []

    def follow() -> None:
        for delta in client.stream(prompt, temperature=0.0, ignore_eos=True, max_tokens=NUM_TOKENS):
            for choice in delta.choices:
                assert choice.first_index == len(token_ids)
                token_ids.extend(choice.token_ids)
            if delta.route is not None:
                attempts.append(delta.route.attempts)
            if len(token_ids) >= 10:
                begun.set()

    with ThreadPoolExecutor(1) as work:
        answer = work.submit(follow)
        assert begun.wait(timeout=20)
        running = [worker for worker in decode if worker_load(worker).num_running]
        assert len(running) == 1, "the answer was over before the worker could be killed"
        cluster.kill(running[0].id, signal.SIGKILL)
        answer.result(timeout=60)

    assert tuple(token_ids) == expected.token_ids
    assert attempts == [2]
    assert_nothing_left(cluster, except_for=(running[0].id, *dead))
