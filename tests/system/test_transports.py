"""Whole clusters on each transport: chosen by themselves, and the same tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config import Role, TransferConfig
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, worker_load, worker_of_role

PROMPT = list(range(2000, 2600))
NUM_TOKENS = 8


@pytest.fixture(scope="module")
def expected(small_cluster: Cluster) -> tuple[int, ...]:
    with Client(small_cluster.grpc_addresses, timeout_s=120.0) as client:
        return client.generate(PROMPT, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True).token_ids


@pytest.mark.parametrize(
    ("transfer", "transport"),
    [
        (TransferConfig(), "shm"),
        (TransferConfig(kv_transports=("island", "shm", "grpc"), island="laptop"), "island"),
        (TransferConfig(kv_transports=("grpc",), kv_checksum="none"), "grpc"),
    ],
    ids=["by default", "island", "grpc, unchecked"],
)
def test_blocks_go_by_what_both_ends_offer(
    tiny_model: Path, expected: tuple[int, ...], transfer: TransferConfig, transport: str
) -> None:
    config = small_cluster_config(tiny_model, transfer=transfer, max_local_prefill_tokens=0)
    with Cluster(config) as cluster, Client(cluster.grpc_addresses, timeout_s=120.0) as client:
        answer = client.generate(PROMPT, max_tokens=NUM_TOKENS, temperature=0.0, ignore_eos=True)
        assert answer.token_ids == expected
        load = worker_load(worker_of_role(cluster, Role.PREFILL))
        assert set(load.sent_bytes_by_transport) == {transport}  # canaries' too
        assert load.sent_bytes_by_transport[transport] >= answer.route.transferred_bytes > 0
        assert not load.transport_fallbacks
        assert_nothing_left(cluster)
