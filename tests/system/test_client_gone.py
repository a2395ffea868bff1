"""A caller who goes away, in any stage and by any way, leaves nothing behind. `make client-gone` measures it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.client_gone.caller import WAYS
from benchmarks.client_gone.departure import depart
from benchmarks.client_gone.stage import Fleet, Stage
from benchmarks.random_model import save_random_model
from common.config import DType, EngineConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

CHUNK_TOKENS = 64
# On a machine that does other things too; alone, it takes a step and a few milliseconds.
MAX_FREED_S = 2.0
MAX_STEPS = 10


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    engine = EngineConfig(
        model=str(save_random_model(tmp_path_factory.mktemp("random"))),
        dtype=DType.FLOAT32,
        kv_memory="128MiB",
        num_threads=1,
        max_num_seqs=2,
        max_num_batched_tokens=CHUNK_TOKENS,
    )
    config = ClusterConfig(engine=engine, grpc_port=0, http_port=0, max_local_prefill_tokens=0)
    with Cluster(config) as cluster:
        fleet = Fleet(cluster)
        yield fleet
        fleet.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", Stage)
def test_nothing_is_left(fleet: Fleet, stage: Stage, way: str) -> None:
    departure = depart(fleet, stage, way, prompt_tokens=1000, chunk_tokens=CHUNK_TOKENS)
    print(departure)
    assert departure.freed_s < MAX_FREED_S
    assert max(departure.num_prefill_steps, departure.num_decode_steps) <= MAX_STEPS
