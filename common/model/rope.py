"""Rotary embedding frequencies and the scaling variants that checkpoints of the Llama family use."""

from __future__ import annotations

import math

import torch
from torch import nn

from common.model.rope_config import RopeConfig, RopeType


class RotaryTable(nn.Module):
    """Cosines and sines of every position, computed once in float32 and kept in the model's dtype."""

    def __init__(
        self, rope: RopeConfig, *, head_dim: int, max_positions: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        positions = torch.arange(max_positions, dtype=torch.float32)
        angles = positions[:, None] * inverse_frequencies(rope, head_dim)  # [max_positions, head_dim / 2]
        cos, sin = angles.cos() * rope.attention_factor, angles.sin() * rope.attention_factor
        table = torch.stack((torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)), dim=1)
        self.table = nn.Buffer(table.to(device=device, dtype=dtype), persistent=False)  # [max_positions, 2, head_dim]

    def forward(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(cosine, sine with its first half negated), each [num_tokens, 1, head_dim]. positions: [num_tokens] int64."""
        cos, signed_sin = self.table.index_select(0, positions).unbind(1)
        return cos.unsqueeze(1).contiguous(), signed_sin.unsqueeze(1).contiguous()


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """[head_dim / 2] float32: radians per position."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).to(torch.float32) / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    match rope.rope_type:
        case RopeType.DEFAULT | RopeType.DYNAMIC:
            return frequencies
        case RopeType.LINEAR:
            return frequencies / rope.factor
        case RopeType.LLAMA3:
            return _llama3(rope, frequencies)
        case RopeType.YARN:
            return _yarn(rope, head_dim, rope.theta**exponents)


def _llama3(rope: RopeConfig, frequencies: torch.Tensor) -> torch.Tensor:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, those between blended."""
    original = rope.original_max_position_embeddings
    wavelengths = 2 * math.pi / frequencies
    low, high = original / rope.low_freq_factor, original / rope.high_freq_factor
    stretched = torch.where(wavelengths > low, frequencies / rope.factor, frequencies)
    blend = (original / wavelengths - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blended = (1 - blend) * stretched / rope.factor + blend * stretched
    return torch.where((wavelengths >= high) & (wavelengths <= low), blended, stretched)


def _yarn(rope: RopeConfig, head_dim: int, position_frequencies: torch.Tensor) -> torch.Tensor:
    """YaRN (Peng et al., 2023, section 3.2): interpolation and extrapolation, blended by number of rotations."""

    def dimension(num_rotations: float) -> float:
        rotations = rope.original_max_position_embeddings / (num_rotations * 2 * math.pi)
        return head_dim * math.log(rotations) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001  # as the authors do: a ramp needs a width
    ramp = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    extrapolated = 1 - ramp
    return 1.0 / (rope.factor * position_frequencies) * (1 - extrapolated) + 1.0 / position_frequencies * extrapolated
