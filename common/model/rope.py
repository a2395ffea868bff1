"""Rotary embedding frequencies and the scaling variants that checkpoints of the Llama family use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch
from torch import nn

from common.errors import UnsupportedModelError


class RopeType(StrEnum):
    DEFAULT = "default"
    LINEAR = "linear"
    DYNAMIC = "dynamic"
    LLAMA3 = "llama3"
    YARN = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """What `config.json` says about rotary embeddings.

    `dynamic` scales only sequences longer than max_position_embeddings, which are refused, so that it acts as
    `default` here.
    """

    rope_type: RopeType = RopeType.DEFAULT
    theta: float = 10000.0
    factor: float = 1.0
    original_max_position_embeddings: int = 0  # tokens
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0  # scales cosine and sine

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> RopeConfig:
        """Reads both layouts: `rope_parameters`, and the older `rope_theta` with `rope_scaling`.

        Raises UnsupportedModelError that names a variant that is not built.
        """
        scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
        name = scaling.get("rope_type", scaling.get("type", RopeType.DEFAULT))
        if name not in list(RopeType):
            raise UnsupportedModelError(
                f"RoPE scaling {name!r} is not built; built are: {', '.join(RopeType)} (per-layer settings are not)"
                if isinstance(name, str) and name
                else "RoPE settings that differ between layers are not built"
            )
        if any(isinstance(value, Mapping) for value in scaling.values()):
            raise UnsupportedModelError("RoPE settings that differ between layers are not built")
        if (scaling.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0) != 1.0:
            raise UnsupportedModelError("a partial rotary embedding (partial_rotary_factor) is not built")
        max_positions = config["max_position_embeddings"]
        original = (
            config.get("original_max_position_embeddings")
            or scaling.get("original_max_position_embeddings")
            or max_positions
        )
        factor = scaling.get("factor") or (max_positions / original if name == RopeType.YARN else 1.0)
        return cls(
            rope_type=RopeType(name),
            theta=float(scaling.get("rope_theta") or config.get("rope_theta") or 10000.0),
            factor=float(factor),
            original_max_position_embeddings=int(original),
            low_freq_factor=float(scaling.get("low_freq_factor", 1.0)),
            high_freq_factor=float(scaling.get("high_freq_factor", 4.0)),
            beta_fast=float(scaling.get("beta_fast") or 32.0),
            beta_slow=float(scaling.get("beta_slow") or 1.0),
            truncate=bool(scaling.get("truncate", True)),
            attention_factor=_yarn_attention_factor(scaling, factor) if name == RopeType.YARN else 1.0,
        )


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


def _yarn_attention_factor(scaling: Mapping[str, Any], factor: float) -> float:
    def scale(mscale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return scale(mscale) / scale(mscale_all_dim) if mscale and mscale_all_dim else scale(1.0)
