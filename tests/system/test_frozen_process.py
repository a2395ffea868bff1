"""A process that hangs, and later goes on, costs a pause of a lease, not a request, a token or a block."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from common.config import Role
from common.errors import UnavailableError
from router.generation import RouteHint
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, worker_load

LEASE_S = 2.0
NUM_TOKENS = 1500


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    config = small_cluster_config(
        tiny_model, prefill=2, decode=2, routers=2, max_local_prefill_tokens=0, lease_s=LEASE_S
    )
    with Cluster(config) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.grpc_addresses[:1], timeout_s=60.0) as client:
        yield client


def wait_until_used(client: Client, worker_id: str, role: Role) -> None:
    """The router gives it work again."""
    deadline_s = time.monotonic() + 20
    hint = RouteHint(prefill_worker=worker_id) if role is Role.PREFILL else RouteHint(decode_worker=worker_id)
    while True:
        try:
            client.generate(range(100, 140), max_tokens=2, route=hint)
            return
        except Exception:
            assert time.monotonic() < deadline_s, f"{worker_id} gets no work"
            time.sleep(0.2)


def test_a_decode_worker_hangs_in_mid_answer(cluster: Cluster, client: Client) -> None:
    prompt = list(range(3000, 3200))
    expected = client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=NUM_TOKENS)
    frozen: str | None = None
    token_ids: list[int] = []
    for delta in client.stream(prompt, temperature=0.0, ignore_eos=True, max_tokens=NUM_TOKENS):
        for choice in delta.choices:
            assert choice.first_index == len(token_ids)
            token_ids.extend(choice.token_ids)
        if frozen is None and len(token_ids) >= 10:
            (frozen,) = [one.id for one in cluster.workers if one.role is Role.DECODE and worker_load(one).num_running]
            cluster.kill(frozen, signal.SIGSTOP)
    assert frozen is not None
    assert tuple(token_ids) == expected.token_ids
    cluster.kill(frozen, signal.SIGCONT)
    wait_until_used(client, frozen, Role.DECODE)
    assert_nothing_left(cluster)


def test_a_prefill_worker_hangs_before_the_first_token(cluster: Cluster, client: Client) -> None:
    frozen, other = (worker for worker in cluster.workers if worker.role is Role.PREFILL)
    prompt = list(range(1000, 1900))
    expected = client.generate(
        prompt, temperature=0.0, ignore_eos=True, max_tokens=8, route=RouteHint(prefill_worker=other.id)
    )
    cluster.kill(frozen.id, signal.SIGSTOP)
    # Prefers the one that hangs: what it has not noticed yet is as the load reports say.
    prompt_of_its_own = [7, *prompt]
    answers = [client.generate(p, temperature=0.0, ignore_eos=True, max_tokens=8) for p in (prompt, prompt_of_its_own)]
    assert answers[0].token_ids == expected.token_ids
    assert {answer.route.prefill_worker for answer in answers} == {other.id}
    cluster.kill(frozen.id, signal.SIGCONT)
    wait_until_used(client, frozen.id, Role.PREFILL)
    assert_nothing_left(cluster)


def test_what_a_router_that_hangs_held_is_free_after_the_lease(cluster: Cluster) -> None:
    prefill = [worker.id for worker in cluster.workers if worker.role is Role.PREFILL]
    decode = [worker for worker in cluster.workers if worker.role is Role.DECODE]
    with Client(cluster.grpc_addresses[1:], timeout_s=60.0) as client, ThreadPoolExecutor(1) as work:
        for name in prefill:
            cluster.kill(name, signal.SIGSTOP)
        answer = work.submit(client.generate, range(2000, 2100), max_tokens=4)
        wait_until(lambda: any(worker_load(worker).num_reservations for worker in decode), "nothing was reserved")
        cluster.kill("router-1", signal.SIGSTOP)
        try:
            wait_until(lambda: not any(worker_load(worker).num_reservations for worker in decode), "it is kept")
        finally:
            for name in ("router-1", *prefill):
                cluster.kill(name, signal.SIGCONT)
        # When it goes on it finds its workers gone for a moment.
        with suppress(UnavailableError):
            assert len(answer.result(timeout=60).token_ids) == 4
    assert_nothing_left(cluster)


def wait_until(holds: Callable[[], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(0.02)
