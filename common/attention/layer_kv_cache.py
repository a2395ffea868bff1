"""How attention sees a KV cache: two strided views for each layer. Who owns the memory is not its business."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch


class LayerKVCache(NamedTuple):
    """One layer's keys and values, block by block, with any strides over the first three dimensions."""

    key: torch.Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]
    value: torch.Tensor  # [num_blocks, num_kv_heads, block_size, head_dim]

    @property
    def block_size(self) -> int:
        return self.key.shape[2]


class KVCacheLayers(Protocol):
    """A KV cache that hands out the views of a layer."""

    def layer(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(keys, values) of a layer, each [num_blocks, num_kv_heads, block_size, head_dim]."""
        ...
