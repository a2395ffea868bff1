"""Root-mean-square normalisation (Zhang and Sennrich, 2019)."""

from __future__ import annotations

import torch


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Normalises over the last dimension in float32 and scales in the weight's dtype, as the checkpoints' authors do.

    hidden: [..., size]; weight: [..., size], broadcast. Returns hidden's shape and the weight's dtype.
    """
    wide = hidden.float()
    variance = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(variance.add_(epsilon))).to(weight.dtype) * weight
