"""A linear layer whose parameters start uninitialised: weights always come from a checkpoint."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import linear


class Linear(nn.Module):
    """x @ weight.T + bias."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        self.weight = empty_parameter(out_features, in_features, dtype=dtype, device=device)
        self.bias = empty_parameter(out_features, dtype=dtype, device=device) if bias else None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[num_tokens, in_features] -> [num_tokens, out_features]."""
        return linear(hidden, self.weight, self.bias)


def empty_parameter(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)
