"""Two routers on one fleet: what one has sent somewhere, the other knows."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipstream.client import Client
from slipstream.generation import Generation
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config

NUM_SIBLINGS = 10
NUM_FAMILIES = 4


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    with Cluster(small_cluster_config(tiny_model, prefill=2, decode=1, routers=2)) as cluster:
        yield cluster


def test_siblings_by_both_routers_meet_on_one_worker(cluster: Cluster) -> None:
    met = []
    for family in range(NUM_FAMILIES):
        shared = list(range(1000 * (family + 1), 1000 * (family + 1) + 640))
        with Client(cluster.grpc_addresses) as client, ThreadPoolExecutor(NUM_SIBLINGS) as work:

            def send(sibling: int, shared: list[int] = shared, client: Client = client) -> Generation:
                # 50 ms for all of them; the client takes its routers by turns.
                time.sleep(0.005 * sibling)
                return client.generate([*shared, *range(9000 + 50 * sibling, 9020 + 50 * sibling)], max_tokens=1)

            answers = list(work.map(send, range(NUM_SIBLINGS)))
        workers = Counter(answer.route.prefill_worker for answer in answers)
        met.append(max(workers.values()))
    # One or two may be on their way before the other router has heard of the first.
    assert statistics.median(met) >= NUM_SIBLINGS - 1, met
    assert_nothing_left(cluster)


def test_an_answer_is_explained_by_whichever_router_gave_it(cluster: Cluster) -> None:
    with Client(cluster.grpc_addresses) as client:
        for number in range(4):
            client.generate([5, 6, 7], max_tokens=1, request_id=f"one-of-{number}")
        assert [client.explain(f"one-of-{number}").prompt_tokens for number in range(4)] == [3, 3, 3, 3]
