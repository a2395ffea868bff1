"""A worker that is told to stop loses nothing: what it decodes moves with its KV, what waits is computed elsewhere."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from common.config import Role
from common.errors import NotFoundError
from slipstream.client import Client
from slipstream.launcher import Cluster, ClusterWorker
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, small_engine, worker_load

T = TypeVar("T")
NUM_TOKENS = 1200


@pytest.fixture
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    # Small chunks, so that prompts wait for seconds.
    prefill_engine = small_engine(tiny_model, max_num_batched_tokens=16)
    config = small_cluster_config(
        tiny_model, prefill_engine=prefill_engine, prefill=2, decode=2, max_local_prefill_tokens=0
    )
    with Cluster(config) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client(cluster.grpc_addresses, timeout_s=60.0) as client:
        yield client


def wait_for(find: Callable[[], T | None], otherwise: str, timeout_s: float = 20.0) -> T:
    """What `find` returns once it is neither None nor False."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := find()):
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(0.01)
    return found


def find_busy_worker(cluster: Cluster) -> ClusterWorker | None:
    """A prefill worker at which a prompt waits. Which one it is is the router's choice."""
    return next((one for one in of_role(cluster, Role.PREFILL) if worker_load(one).num_waiting > 0), None)


def of_role(cluster: Cluster, role: Role) -> list[ClusterWorker]:
    return [worker for worker in cluster.workers if worker.role is role]


def collect(client: Client, prompt: list[int], on_tokens: Callable[[], None], **options: Any) -> dict[int, list[Any]]:
    """Tokens and logprobs of each choice. `on_tokens` is called once, when some have come."""
    got: dict[int, list[Any]] = {}
    told = False
    for delta in client.stream(prompt, ignore_eos=True, **options):
        for choice in delta.choices:
            tokens = got.setdefault(choice.index, [])
            assert choice.first_index == len(tokens), "a token was lost or came twice"
            tokens += zip(choice.token_ids, choice.logprobs or [None] * len(choice.token_ids), strict=True)
        if not told and sum(map(len, got.values())) >= 20:
            told = True
            on_tokens()
    return got


OPTIONS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {
        "max_tokens": 500,
        "temperature": 1.0,
        "seed": 5,
        "n": 3,
        "logprobs": 2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.3,
    },
]


@pytest.mark.parametrize("options", OPTIONS, ids=["greedy", "seeded, n=3, logprobs, penalties"])
def test_what_a_decode_worker_decodes_moves_on(cluster: Cluster, client: Client, options: dict[str, Any]) -> None:
    options = {"max_tokens": NUM_TOKENS, **options}
    prompt = list(range(3000, 3200))
    expected = collect(client, prompt, lambda: None, **options)
    decode = of_role(cluster, Role.DECODE)
    stopped: list[ClusterWorker] = []
    num_prefilled = []

    def stop() -> None:
        num_prefilled.append(sum(worker_load(worker).num_prefilled_tokens for worker in cluster.workers))
        stopped.extend(worker for worker in decode if worker_load(worker).num_running)
        assert len(stopped) == 1, "the answer was over before the worker could be stopped"
        cluster.kill(stopped[0].id, signal.SIGTERM)

    got = collect(client, prompt, stop, **options)
    assert {index: [token for token, _ in tokens] for index, tokens in got.items()} == {
        index: [token for token, _ in tokens] for index, tokens in expected.items()
    }
    wait_for(lambda: cluster.child(stopped[0].id).exit_code is not None, "it does not stop")
    assert cluster.child(stopped[0].id).exit_code == 0
    left = [worker for worker in cluster.workers if worker.id != stopped[0].id]
    assert sum(worker_load(worker).num_prefilled_tokens for worker in left) <= num_prefilled[0], "it was computed again"
    assert_nothing_left(cluster, except_for=(stopped[0].id,))


def test_a_drained_worker_runs_on_idle_until_it_is_told_otherwise(cluster: Cluster, client: Client) -> None:
    first, other = of_role(cluster, Role.DECODE)
    command = [sys.executable, "-m", "slipstream", "drain", first.id, "--target", cluster.grpc_addresses[0]]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == f"{first.id} is drained: nothing is left on it. Stop it, or take it back with --undo\n"
    decoded_by = {client.generate([number] * 40, max_tokens=3).route.decode_worker for number in range(6)}
    assert decoded_by == {other.id}
    states = {worker.worker_id: worker.state for worker in client.status().workers}
    assert (states[first.id], states[other.id]) == ("draining", "ready")
    assert client.drain(other.id) == 0
    subprocess.run([*command, "--undo"], timeout=60, check=True)
    decoded_by = {client.generate([number] * 40, max_tokens=3).route.decode_worker for number in range(6, 12)}
    assert decoded_by == {first.id}
    with pytest.raises(NotFoundError, match="there are: decode-0, decode-1, prefill-0, prefill-1"):
        client.drain("decode-7")


def test_what_waits_at_a_prefill_worker_is_computed_elsewhere(cluster: Cluster, client: Client) -> None:
    prompts = [[number, *range(1000, 2800)] for number in range(48)]
    expected = [client.generate(prompt, temperature=0.0, ignore_eos=True, max_tokens=4) for prompt in prompts[:3]]
    with ThreadPoolExecutor(len(prompts)) as work:
        answers = [
            work.submit(client.generate, prompt, temperature=0.0, ignore_eos=True, max_tokens=4) for prompt in prompts
        ]
        victim = wait_for(lambda: find_busy_worker(cluster), "nothing waits")
        cluster.kill(victim.id, signal.SIGTERM)
        generations = [answer.result(timeout=60) for answer in answers]
    assert [one.token_ids for one in generations[:3]] == [one.token_ids for one in expected]
    wait_for(lambda: cluster.child(victim.id).exit_code is not None, "it does not stop")
    assert cluster.child(victim.id).exit_code == 0
    assert_nothing_left(cluster, except_for=(victim.id,))


def test_the_only_decode_worker_finishes_what_it_has(tiny_model: Path) -> None:
    with (
        Cluster(small_cluster_config(tiny_model, max_local_prefill_tokens=0)) as cluster,
        Client(cluster.grpc_addresses, timeout_s=60.0) as client,
    ):
        (decode,) = of_role(cluster, Role.DECODE)
        got = collect(
            client,
            list(range(3000, 3200)),
            lambda: cluster.kill(decode.id, signal.SIGTERM),
            temperature=0.0,
            max_tokens=NUM_TOKENS,
        )
        assert len(got[0]) == NUM_TOKENS
        wait_for(lambda: cluster.child(decode.id).exit_code is not None, "it does not stop")
        assert cluster.child(decode.id).exit_code == 0
