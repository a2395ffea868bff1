"""Routing as callers and operators see it: siblings meet, tails stay on decode, decisions are told."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.errors import NotFoundError, OverloadedError
from router.generation import RouteHint
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.scrape import assert_documented
from tests.support.small_cluster import assert_nothing_left, small_cluster_config

NUM_SIBLINGS = 10


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    with Cluster(small_cluster_config(tiny_model, prefill=2, decode=1, routers=1)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """Both prefill workers have computed enough for predictions."""
    with Client(cluster.grpc_addresses, timeout_s=60.0) as client:
        for number in range(2):
            hint = RouteHint(prefill_worker=f"prefill-{number}")
            for start in (40_000, 42_000):
                prompt = range(start + 1000 * number, start + 1000 * number + 1000)
                client.generate(list(prompt), max_tokens=16, temperature=0.0, route=hint)
        yield client


def metrics(cluster: Cluster) -> str:
    with urllib.request.urlopen(f"{cluster.http_urls[0]}/metrics") as response:
        text: str = response.read().decode()
    return text


def test_siblings_that_arrive_together_meet_on_one_worker(client: Client) -> None:
    shared = list(range(1000, 1000 + 640))
    prompts = [[*shared, *range(10_000 + 100 * index, 10_000 + 100 * index + 20)] for index in range(NUM_SIBLINGS)]
    with ThreadPoolExecutor(NUM_SIBLINGS) as work:
        answers = list(work.map(lambda prompt: client.generate(prompt, max_tokens=2, temperature=0.0), prompts))
    # One that comes when the prefix is being decoded already may have its tail computed there.
    used = Counter(answer.route.prefill_worker for answer in answers if answer.route.prefill_worker)
    assert len(used) == 1
    # Those that share the first one's step compute the prefix beside it; a step takes about three of them.
    assert sum(answer.usage.cached_tokens >= 640 for answer in answers) >= NUM_SIBLINGS // 2


def test_a_short_tail_is_computed_where_the_prefix_is_decoded(cluster: Cluster, client: Client) -> None:
    prompt = list(range(5000, 5320))
    expected = client.generate(prompt, max_tokens=8, temperature=0.0, ignore_eos=True)
    assert expected.route.prefill_worker
    deadline_s = time.monotonic() + 10
    while True:  # the index tells routers a moment later
        answer = client.generate(prompt, max_tokens=8, temperature=0.0, ignore_eos=True)
        assert answer.token_ids == expected.token_ids
        if not answer.route.prefill_worker:
            break
        assert time.monotonic() < deadline_s, "decode did not prefill the tail"
    assert answer.usage.cached_tokens == 319  # all but the last token
    assert answer.route.transferred_blocks == 0
    assert 'slipstream_route_decisions_total{decision="local",reason="short_tail"}' in metrics(cluster)
    assert_nothing_left(cluster)


def test_decisions_are_told(cluster: Cluster, client: Client) -> None:
    answer = client.generate(list(range(7000, 7200)), max_tokens=4, temperature=0.0, request_id="why")
    assert answer.request_id == "why"
    told = client.explain("why")
    assert told.request_id == "why"
    assert told.prompt_tokens == 200
    (plan,) = told.plans
    assert plan.kind == "split"
    assert {one.worker_id for one in plan.prefill} == {"prefill-0", "prefill-1"}
    assert plan.prefill[0].worker_id == answer.route.prefill_worker
    assert plan.prefill[0].cost == pytest.approx(sum(plan.prefill[0].terms.values()))
    assert plan.predicted_ttft_ms is not None and plan.predicted_ttft_ms > 0
    assert told.missed == {"first_seen": 192, "below_stride": 8}
    assert told.ttft_ms is not None and told.ttft_ms > 0
    with pytest.raises(NotFoundError, match="nobody"):
        client.explain("nobody")


def test_the_command_explains(cluster: Cluster, client: Client) -> None:
    client.generate(list(range(8000, 8200)), max_tokens=4, temperature=0.0, request_id="asked")
    command = [sys.executable, "-m", "slipstream", "explain", "asked", "--target", cluster.grpc_addresses[0]]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "attempt 1: split" in shown
    assert "nothing of this prompt was seen before" in shown
    as_json = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(as_json)["request_id"] == "asked"


def test_a_deadline_that_can_not_be_met_is_refused_at_once(cluster: Cluster, client: Client) -> None:
    with pytest.raises(OverloadedError, match=r"deadline_ms.*is expected in"):
        client.generate(list(range(20_000, 20_900)), max_tokens=1000, min_tokens=1000, ignore_eos=True, deadline_ms=5)
    assert_nothing_left(cluster)


def test_what_a_scrape_shows_is_documented(cluster: Cluster, client: Client) -> None:
    client.generate(list(range(6000, 6100)), max_tokens=4, temperature=0.0)
    assert_documented(metrics(cluster))


def test_causes_of_misses_are_counted(cluster: Cluster, client: Client) -> None:
    prompt = list(range(9000, 9200))
    client.generate(prompt, max_tokens=2, temperature=0.0)
    client.generate([*prompt[:128], *range(30_000, 30_072)], max_tokens=2, temperature=0.0)
    counted = metrics(cluster)
    for cause in ("first_seen", "diverged", "below_stride"):
        assert f'slipstream_prefix_miss_tokens_total{{cause="{cause}"}}' in counted
    assert "slipstream_ttft_actual_over_predicted_count" in counted
