"""Rotary position embedding (Su et al., 2021) in the half-split form of the Llama checkpoints."""

from __future__ import annotations

import torch


def apply_rotary(heads: torch.Tensor, cos: torch.Tensor, signed_sin: torch.Tensor) -> torch.Tensor:
    """Rotates each head by its token's angles.

    heads: [num_tokens, num_heads, head_dim]; cos and signed_sin: [num_tokens, 1, head_dim], the first half of
    signed_sin negated, so that swapping halves needs no negation. Returns heads' shape and dtype.
    """
    swapped = heads.roll(heads.shape[-1] // 2, dims=-1)
    return (heads * cos).add_(swapped.mul_(signed_sin))
