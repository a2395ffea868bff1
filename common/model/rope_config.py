"""What a checkpoint's `config.json` says about rotary embeddings, in either of its layouts. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


def _yarn_attention_factor(scaling: Mapping[str, Any], factor: float) -> float:
    def scale(mscale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return scale(mscale) / scale(mscale_all_dim) if mscale and mscale_all_dim else scale(1.0)
