"""The index server dies under a running fleet and comes back empty: routing goes on, and hits come back."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from common.config import IndexConfig
from common.index.server import EmbeddedIndexConfig, EmbeddedIndexServer
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config

TIMEOUT_S = 30.0


def wait_until(what: str, holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline_s, f"{what}: not after {TIMEOUT_S:g} s"
        time.sleep(0.1)


def is_degraded(client: Client) -> bool:
    router = client.status().router
    assert router is not None
    return router.index_degraded


def degraded_metric(cluster: Cluster) -> float:
    with urllib.request.urlopen(f"{cluster.http_urls[0]}/metrics") as response:
        lines = response.read().decode().splitlines()
    return float(next(line for line in lines if line.startswith("slipstream_index_degraded ")).split()[1])


def test_a_lost_index_costs_hits_for_a_while_and_nothing_else(tiny_model: Path) -> None:
    first = EmbeddedIndexServer()
    first.start()
    port = int(first.url.rpartition(":")[2])
    config = small_cluster_config(
        tiny_model, prefill=2, decode=1, max_local_prefill_tokens=0, index=IndexConfig(index_url=first.url)
    )
    with Cluster(config) as cluster, Client(cluster.grpc_addresses, timeout_s=30.0) as client:
        numbers = iter(range(10_000))

        def found(prompt: list[int]) -> int:
            """Tokens of the prompt that the router finds cached somewhere."""
            request_id = f"request-{next(numbers)}"
            client.generate(prompt, max_tokens=2, temperature=0.0, request_id=request_id)
            return client.explain(request_id).plans[0].prefill[0].cached_tokens

        prompt = list(range(1000, 1320))
        found(prompt)
        time.sleep(1.5)  # what the router had under way is forgotten by now: the index alone knows
        assert found(prompt) > 0

        first.stop()
        wait_until("degraded", lambda: is_degraded(client))
        wait_until("the metric", lambda: degraded_metric(cluster) == 1.0)
        while_away = list(range(2000, 2320))
        found(while_away)
        time.sleep(1.5)
        assert found(while_away) == 0
        assert len(client.status().workers) == 3

        with EmbeddedIndexServer(EmbeddedIndexConfig(port=port)):
            wait_until("not degraded", lambda: not is_degraded(client))
            wait_until("hits of before", lambda: found(prompt) > 0)
            wait_until("hits of meanwhile", lambda: found(while_away) > 0)
            assert_nothing_left(cluster)
