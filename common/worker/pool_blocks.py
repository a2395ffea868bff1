"""The pool's bytes as transports see them."""

from __future__ import annotations

import torch

from common.engine.kv_cache import KVCache


class PoolBlocks:
    """A BlockReader, BlockWriter and TensorBlocks over the engine's pool. Any thread, for blocks that it was given."""

    def __init__(self, kv_cache: KVCache) -> None:
        self._kv_cache = kv_cache

    def block_size_bytes(self, group_id: int) -> int:
        return self._kv_cache.spec.groups[group_id].bytes_per_block

    @property
    def device(self) -> torch.device:
        return self._kv_cache.device

    @property
    def in_host_memory(self) -> bool:
        return self._kv_cache.device.type == "cpu"

    def pool_tensors(self) -> tuple[torch.Tensor, ...]:
        return self._kv_cache.tensors

    def block_tensor(self, group_id: int, block_id: int) -> torch.Tensor:
        return self._kv_cache.block_tensor(group_id, block_id)

    def block_bytes(self, group_id: int, block_id: int) -> memoryview:
        return self._kv_cache.block_bytes(group_id, block_id).data

    def write_block(self, group_id: int, block_id: int, offset: int, data: memoryview) -> None:
        self._kv_cache.write_block_bytes(group_id, block_id, data, offset)
