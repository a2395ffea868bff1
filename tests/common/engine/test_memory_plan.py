"""Where memory goes, and the values that an error offers: each is tried."""

from __future__ import annotations

import re
from typing import Any

import pytest

from common.config import EngineConfig
from common.engine.memory_plan import MemoryNeeds, MemoryPlan, plan_memory
from common.errors import InsufficientMemoryError
from common.kv.spec import KVCacheGroup, KVCacheSpec

MIB = 2**20
SPEC = KVCacheSpec(
    groups=(KVCacheGroup(group_id=0, layers=(0, 1, 2, 3), num_kv_heads=2, head_dim=64, block_size=16, dtype="float32"),)
)  # 64 KiB a block


def plan(
    *, free_mib: int = 1000, host_free_mib: int | None = None, max_model_len: int = 4096, **config: Any
) -> MemoryPlan:
    return plan_memory(
        EngineConfig(**config),
        MemoryNeeds(
            weight_bytes=200 * MIB,
            activation_bytes=100 * MIB,
            free_bytes=free_mib * MIB,
            host_free_bytes=None if host_free_mib is None else host_free_mib * MIB,
            spec=SPEC,
            max_model_len=max_model_len,
            max_num_batched_tokens=2048,
        ),
    )


def test_the_pool_is_a_share_of_what_is_left() -> None:
    assert plan(kv_memory_share=0.5).num_blocks == 350 * 16
    assert plan(kv_memory="64MiB").num_blocks == 64 * 16


def test_no_more_blocks_than_the_batch_can_use() -> None:
    assert plan(free_mib=100_000, max_num_seqs=2, max_model_len=160).num_blocks == 2 * 2 * 10


def test_the_plan_reads_as_a_line() -> None:
    text = str(plan(kv_memory="64MiB"))
    assert (
        "weights 200.0 MiB, activations 100.0 MiB, KV cache 64.0 MiB (1024 blocks of 16 tokens), "
        "swap space 16.0 MiB; 1000.0 MiB free" in text
    )


def test_swap_space_follows_the_kv_cache_unless_it_is_given() -> None:
    assert plan(kv_memory="64MiB").num_host_blocks == 16 * 16
    assert plan(kv_memory="64MiB", swap_space="2MiB").num_host_blocks == 2 * 16
    assert plan(kv_memory="64MiB", swap_space="0").num_host_blocks == 0
    assert plan(free_mib=100_000, kv_memory="40GiB").swap_bytes == 4 * 2**30


def test_on_one_memory_the_swap_space_gets_what_the_kv_cache_leaves() -> None:
    assert plan(kv_memory="695MiB", max_model_len=64).swap_bytes == 5 * MIB
    with pytest.raises(InsufficientMemoryError, match=r"--swap-space 6\.0 MiB is more than") as raised:
        plan(kv_memory="695MiB", max_model_len=64, swap_space="6MiB")
    (offered,) = re.findall(r"to at most (\w+)", str(raised.value))
    assert plan(kv_memory="695MiB", max_model_len=64, swap_space=offered).swap_bytes == 5 * MIB


def test_beside_a_device_the_host_has_its_own_memory() -> None:
    assert plan(kv_memory="64MiB", host_free_mib=8).swap_bytes == 8 * MIB
    assert plan(kv_memory="700MiB", host_free_mib=1000).swap_bytes == 175 * MIB
    with pytest.raises(InsufficientMemoryError, match="--swap-space"):
        plan(kv_memory="64MiB", host_free_mib=8, swap_space="9MiB")


def test_weights_that_do_not_fit_say_how_much_would() -> None:
    with pytest.raises(InsufficientMemoryError, match=r"leave no room.*free 316.0 MiB, or .*--model, --dtype"):
        plan(free_mib=150)


def test_a_step_that_is_too_large_offers_one_that_fits() -> None:
    with pytest.raises(InsufficientMemoryError, match=r"leave no room.*--max-num-batched-tokens") as raised:
        plan(free_mib=290)
    (offered,) = re.findall(r"at most (\d+)", str(raised.value))
    needed_mib = 200 + 100 * int(offered) / 2048 + 16
    assert 285 < needed_mib <= 290


def test_more_kv_memory_than_there_is_offers_what_fits() -> None:
    with pytest.raises(InsufficientMemoryError, match="--kv-memory to at most") as raised:
        plan(kv_memory="2GiB")
    (offered,) = re.findall(r"at most (\w+)$", str(raised.value))
    assert plan(kv_memory=offered).num_blocks == 700 * 16


@pytest.mark.parametrize("given", [{"kv_memory": "8MiB"}, {"kv_memory_share": 0.01}])
def test_too_few_blocks_for_one_request_offers_values_that_fit(given: dict[str, Any]) -> None:
    with pytest.raises(InsufficientMemoryError) as raised:
        plan(**given)
    message = str(raised.value)
    (kv_memory,) = re.findall(r"--kv-memory to at least (\w+)", message)
    assert plan(kv_memory=kv_memory).num_blocks == 256
    (max_model_len,) = re.findall(r"--max-model-len to at most (\d+)", message)
    assert plan(max_model_len=int(max_model_len), **given).num_blocks * 16 >= int(max_model_len)
