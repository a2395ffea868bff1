"""Cosines and sines of rotary positions, with the scaling variants of the supported configs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


class Rotation(NamedTuple):
    """What `apply_rotary` takes: both [num_tokens, 1, head_dim]."""

    cos: torch.Tensor
    signed_sin: torch.Tensor


class RotaryEmbedding(nn.Module):
    """Angles are computed in float32 from the positions, whatever the model's dtype."""

    def __init__(self, hf_config: Any, head_dim: int, rope_type: str) -> None:
        super().__init__()
        if rope_type == "default":
            theta = hf_config.rope_parameters["rope_theta"]
            frequencies = 1.0 / (theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim))
            self.scale = 1.0
        else:
            frequencies, self.scale = ROPE_INIT_FUNCTIONS[rope_type](hf_config, torch.device("cpu"))
        self.frequencies: torch.Tensor  # [head_dim / 2] float32
        self.register_buffer("frequencies", frequencies.float(), persistent=False)

    def forward(self, positions: torch.Tensor, dtype: torch.dtype) -> Rotation:
        """positions: [num_tokens] int64."""
        angles = positions[:, None].float() * self.frequencies  # [num_tokens, head_dim / 2]
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        return Rotation(
            torch.cat((cos, cos), dim=-1)[:, None].to(dtype),
            torch.cat((-sin, sin), dim=-1)[:, None].to(dtype),
        )
