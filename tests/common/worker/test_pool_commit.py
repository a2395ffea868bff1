"""The pool's memory is there before anything is written to it, and holds what it held."""

from __future__ import annotations

import time

import psutil
import pytest
import torch

from common.engine.kv_cache import KVCache
from common.kernels.cpu.huge_pages import commit, huge_buffer
from common.kv.block_pool import BlockPool
from common.kv.spec import KVCacheGroup, KVCacheSpec
from common.worker.pool_commit import PoolCommit

NUM_BLOCKS = 4096
MIB = 2**20


def make_cache() -> KVCache:
    """16 MiB."""
    group = KVCacheGroup(group_id=0, layers=(0,), num_kv_heads=1, head_dim=64, block_size=8, dtype="float32")
    return KVCache(spec=KVCacheSpec(groups=(group,)), num_blocks=NUM_BLOCKS, device=torch.device("cpu"))


def test_what_is_committed_keeps_its_contents() -> None:
    buffer = huge_buffer(5_000_000)
    buffer[4_999_999] = 7
    commit(buffer[123:])
    assert buffer[4_999_999] == 7
    assert not buffer[:4_999_999].any()


def test_nothing_is_committed_of_nothing() -> None:
    assert not commit(torch.empty(0, dtype=torch.uint8))


@pytest.fixture
def process() -> psutil.Process:
    if not commit(huge_buffer(100_000)):
        pytest.skip("this system commits memory at the first write only")
    return psutil.Process()


def test_the_pool_is_in_memory_before_it_is_written_to(process: psutil.Process) -> None:
    cache, resident_bytes = make_cache(), process.memory_info().rss
    PoolCommit(cache, BlockPool(NUM_BLOCKS)).begin()
    (memory,) = cache.device_tensors
    assert process.memory_info().rss - resident_bytes > 0.9 * memory.nbytes
    assert not memory.any()


def test_memory_goes_ahead_of_its_use_and_no_further(process: psutil.Process) -> None:
    cache, resident_bytes = make_cache(), process.memory_info().rss
    pool = BlockPool(NUM_BLOCKS)
    ahead = PoolCommit(cache, pool, ahead_bytes=4 * MIB)
    ahead.begin()
    assert 3 * MIB < process.memory_info().rss - resident_bytes < 8 * MIB
    ahead.start()
    pool.release(pool.allocate(NUM_BLOCKS // 2))
    deadline_s = time.monotonic() + 30
    while process.memory_info().rss - resident_bytes < 11 * MIB and time.monotonic() < deadline_s:
        time.sleep(0.01)
    ahead.stop()
    assert 11 * MIB < process.memory_info().rss - resident_bytes < 15 * MIB
