"""Root-mean-square normalisation (Zhang and Sennrich, 2019)."""

from __future__ import annotations

import torch


def rms_norm(hidden: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Normalises over the last dimension in float32 and scales in the input's dtype, as the checkpoints' authors do.

    hidden: [..., size]; weight: [..., size], broadcast. Returns hidden's shape and dtype.
    """
    if hidden.dtype == torch.float32:
        variance = hidden.square().mean(-1, keepdim=True)
        return hidden * torch.rsqrt(variance.add_(epsilon)) * weight
    wide = hidden.float()
    variance = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(variance.add_(epsilon))).to(hidden.dtype) * weight
