"""Textbook twins of the kernels, written for reading: every kernel is tested against its twin."""

from __future__ import annotations

import math

import torch


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """hidden: [..., size]; weight: [..., size]."""
    wide = hidden.double()
    root = (wide.pow(2).sum(-1, keepdim=True) / hidden.shape[-1] + epsilon).sqrt()
    return (weight.double() * (wide / root)).to(hidden.dtype)


def apply_rotary(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """heads: [num_tokens, num_heads, head_dim]; angles: [num_tokens, head_dim / 2] radians."""
    wide, half = heads.double(), heads.shape[-1] // 2
    cos, sin = angles.double().cos()[:, None], angles.double().sin()[:, None]
    first, second = wide[..., :half], wide[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(heads.dtype)


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """gate_up: [num_tokens, 2 * size] -> [num_tokens, size]."""
    gate, up = gate_up.double().chunk(2, dim=-1)
    return (gate / (1.0 + torch.exp(-gate)) * up).to(gate_up.dtype)


def attention(
    query: torch.Tensor,  # [num_queries, num_q_heads, head_dim], the last positions of the sequence
    key: torch.Tensor,  # [num_keys, num_kv_heads, head_dim]
    value: torch.Tensor,  # [num_keys, num_kv_heads, head_dim]
    window: int | None = None,
) -> torch.Tensor:
    """[num_queries, num_q_heads, head_dim], head by head and query by query."""
    num_queries, num_q_heads, head_dim = query.shape
    num_keys, num_kv_heads, _ = key.shape
    output = torch.empty(query.shape, dtype=torch.float64)
    for row in range(num_queries):
        position = num_keys - num_queries + row
        first = 0 if window is None else max(0, position - window + 1)
        for head in range(num_q_heads):
            shared = head // (num_q_heads // num_kv_heads)
            keys = key[first : position + 1, shared].double()
            weights = (keys @ query[row, head].double() / math.sqrt(head_dim)).softmax(0)
            output[row, head] = weights @ value[first : position + 1, shared].double()
    return output.to(query.dtype)
