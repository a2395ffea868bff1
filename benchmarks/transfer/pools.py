"""What is moved: two pools of the shape of an 8-billion-parameter model's."""

from __future__ import annotations

import numpy as np
import torch

from common.engine.kv_cache import KVCache
from common.kv.spec import KVCacheGroup, KVCacheSpec

# Llama 3 8B in bfloat16: 2 MiB a block of 16 tokens.
SPEC = KVCacheSpec(
    groups=(
        KVCacheGroup(
            group_id=0, layers=tuple(range(32)), num_kv_heads=8, head_dim=128, block_size=16, dtype="bfloat16"
        ),
    )
)
BLOCK_BYTES = SPEC.bytes_per_block


def make_pool(num_blocks: int, *, seed: int | None) -> KVCache:
    """Every page is there already: pools of running workers are. Random bytes when there is a seed."""
    pool = KVCache(spec=SPEC, num_blocks=num_blocks, device=torch.device("cpu"))
    random = np.random.default_rng(seed)
    for block_id in range(num_blocks):
        data = np.ones(BLOCK_BYTES, np.uint8) if seed is None else random.integers(0, 256, BLOCK_BYTES, np.uint8)
        pool.write_block_bytes(0, block_id, data)
    return pool
