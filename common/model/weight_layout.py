"""In which layouts a worker keeps its weights: rows for torch's products of many tokens, panels for steps of a few."""

from __future__ import annotations

from enum import Enum

import torch

from common.attention.backend import AttentionBackend
from common.attention.native_attention import NativeAttention


class WeightLayout(Enum):
    ROWS = "rows"
    PANELS = "panels"
    BOTH = "both"  # a copy of each


def best_layout(wanted: WeightLayout, attention: AttentionBackend, dtype: torch.dtype) -> WeightLayout:
    """What serves a worker best that would have `wanted` where each layout is the best one for its kind of step.

    Panels need the native kernels. Where those multiply at the full rate, panels are as good for many tokens too:
    2,048 rows of 4,096 by 4,096 took 74 ms in bfloat16 (torch 77) and 146 in float32 (torch 350), on two cores with
    AVX-512. AVX2 has no bfloat16 products, and widening each weight takes five times as long there.
    """
    if not isinstance(attention, NativeAttention):
        return WeightLayout.ROWS
    multiplies_at_full_rate = dtype is torch.float32 or attention.library.isa_name == "avx512_bf16"
    return WeightLayout.PANELS if multiplies_at_full_rate else wanted
