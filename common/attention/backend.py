"""The seam between a model and the kernels that compute its attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import LayerKVCache


class AttentionBackend(Protocol):
    """Writes a step's keys and values to the cache and attends over it.

    `plan` does once per step what no layer changes (indices, masks); `attend` runs for each layer.
    """

    name: str

    @property
    def description(self) -> str:
        """The name, and what else an operator should see of it."""
        ...

    def plan(self, batch: ForwardBatch, cache: LayerKVCache, windows: Sequence[int | None]) -> Any:
        """What `attend` needs for this batch. `cache` is any layer's (all have the same strides); `windows` holds the
        distinct sliding windows of the model's layers, in tokens, None for full attention."""
        ...

    def attend(
        self,
        plan: Any,
        query: torch.Tensor,  # [num_tokens, num_q_heads, head_dim]
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        cache: LayerKVCache,
        *,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        """[num_tokens, num_q_heads * head_dim], causal; a token sees at most the last `window` positions, itself
        included. Key and value are written to the cache first."""
        ...
