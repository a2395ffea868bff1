"""How the native kernels see a layer's KV cache."""

from __future__ import annotations

import torch

from common.kernels.cpu.abi import DTYPES, HeadShape, KvCache

HEAD_DIM_UNIT = 8  # AVX2 reads whole vectors of a head
MAX_HEAD_DIM = 256  # as in csrc/attention.h
MAX_SHARED_HEADS = 96  # query heads per key head, as in csrc/chunk_attention.h


def refusal(dtype: torch.dtype, heads: HeadShape) -> str | None:
    """Why the native kernels can't serve such a model; None: they can."""
    if dtype not in DTYPES:
        return f"they compute in float32 and bfloat16, not {str(dtype).removeprefix('torch.')}"
    if heads.head_dim % HEAD_DIM_UNIT or heads.head_dim > MAX_HEAD_DIM:
        return f"they need heads of a multiple of {HEAD_DIM_UNIT} and at most {MAX_HEAD_DIM}, not {heads.head_dim}"
    if heads.num_q_heads > MAX_SHARED_HEADS * heads.num_kv_heads:
        return f"at most {MAX_SHARED_HEADS} query heads may share a key head"
    return None


def kv_cache_struct(key: torch.Tensor, value: torch.Tensor) -> KvCache:
    """key and value: [num_blocks, num_kv_heads, block_size, head_dim], with the same strides and whole rows."""
    assert key.stride() == value.stride() and key.stride(3) == 1
    return KvCache(
        key=key.data_ptr(),
        value=value.data_ptr(),
        block_stride=key.stride(0),
        head_stride=key.stride(1),
        token_stride=key.stride(2),
        block_size=key.shape[2],
    )
