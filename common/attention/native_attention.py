"""Attention by the native kernels for CPUs: over the blocks where they lie, without a copy of them.

Requests with a few query tokens go row by row, each row over the keys up to its own position; longer chunks go in
tiles. One call per layer writes the keys and values and computes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array
from dataclasses import dataclass
from itertools import pairwise

import torch

from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import LayerKVCache
from common.kernels.cpu.abi import AttentionCall, AttentionChunk, AttentionRows, HeadShape
from common.kernels.cpu.library import CpuLibrary
from common.kernels.cpu.paged_kv import kv_cache_struct

# Query tokens from which laying the keys out for tiles costs less than reading them once per row.
MIN_CHUNK_QUERIES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeAttentionPlan:
    """The batch as the kernels want it. All index tensors are contiguous."""

    slots: torch.Tensor  # [num_tokens] int64
    positions: torch.Tensor  # [num_tokens] int64
    block_tables: torch.Tensor  # [num_requests, max_blocks] int32
    rows: torch.Tensor  # [num_rows] int32: rows of the batch that go one by one
    requests: torch.Tensor  # [num_rows] int32
    chunks: tuple[AttentionChunk, ...]

    @classmethod
    def of(cls, batch: ForwardBatch) -> NativeAttentionPlan:
        rows: list[int] = []
        requests: list[int] = []
        chunks = []
        for request, (start, end) in enumerate(pairwise(batch.query_start_loc_cpu)):
            if end - start < MIN_CHUNK_QUERIES:
                rows += range(start, end)
                requests += [request] * (end - start)
            else:
                chunks.append(AttentionChunk(start, end - start, batch.seq_lens_cpu[request], request))
        return cls(
            slots=batch.slot_mapping.contiguous(),
            positions=batch.positions.contiguous(),
            block_tables=batch.block_tables.contiguous(),
            rows=torch.tensor(rows, dtype=torch.int32),
            requests=torch.tensor(requests, dtype=torch.int32),
            chunks=tuple(chunks),
        )

    @property
    def row_struct(self) -> AttentionRows:
        """Points into this object's tensors."""
        return AttentionRows(len(self.rows), self.rows.data_ptr(), self.requests.data_ptr(), self.positions.data_ptr())

    @property
    def chunk_array(self) -> Array[AttentionChunk]:
        return (AttentionChunk * len(self.chunks))(*self.chunks)


class NativeAttention:
    """`AttentionBackend` for CPUs, float32 and bfloat16. One thread at a time: calls share the library's scratch."""

    name = "native"

    def __init__(self, library: CpuLibrary) -> None:
        self.library = library

    @property
    def description(self) -> str:
        return f"{self.name} ({self.library.isa_name})"

    def plan(self, batch: ForwardBatch, cache: LayerKVCache, windows: Sequence[int | None]) -> NativeAttentionPlan:
        return NativeAttentionPlan.of(batch)

    def attend(
        self,
        plan: NativeAttentionPlan,
        query: torch.Tensor,  # [num_tokens, num_q_heads, head_dim]
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        cache: LayerKVCache,
        *,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        query, key, value = (_whole_rows(heads) for heads in (query, key, value))
        num_tokens, num_q_heads, head_dim = query.shape
        output = query.new_empty(num_tokens, num_q_heads * head_dim)
        call = AttentionCall(
            query=query.data_ptr(),
            key=key.data_ptr(),
            value=value.data_ptr(),
            query_stride=query.stride(0),
            key_stride=key.stride(0),
            value_stride=value.stride(0),
            num_tokens=num_tokens,
            slots=plan.slots.data_ptr(),
            cache=kv_cache_struct(cache.key, cache.value),
            heads=HeadShape(num_q_heads, key.shape[1], head_dim),
            block_tables=plan.block_tables.data_ptr(),
            table_stride=plan.block_tables.shape[1],
            rows=plan.row_struct,
            chunks=plan.chunk_array,
            num_chunks=len(plan.chunks),
            window=window or 0,
            scale=scale,
            output=output.data_ptr(),
        )
        self.library.attention(query.dtype, call)
        return output


def _whole_rows(heads: torch.Tensor) -> torch.Tensor:
    """As it is where a token's heads lie together, else a copy."""
    return heads if heads.stride()[1:] == (heads.shape[2], 1) else heads.contiguous()
