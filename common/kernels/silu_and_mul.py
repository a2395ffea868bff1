"""The gate of a SwiGLU feed-forward layer (Shazeer, 2020)."""

from __future__ import annotations

import torch
from torch.nn.functional import silu


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(first half) * second half. gate_up: [num_tokens, 2 * size] -> [num_tokens, size]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate).mul_(up)
