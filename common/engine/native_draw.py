"""Draws in native code what `random_draw.draw_tokens` draws with torch: on a CPU, at a fraction of its price."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch

from common.errors import EngineError
from common.kernels.cpu.abi import DrawCall, DrawRow
from common.kernels.cpu.library import CpuLibrary
from common.request import SamplingParams


class Draw(NamedTuple):
    """One token to draw. The last three are what its random numbers depend on, see `philox.DrawKeys`."""

    logits_row: int
    sampling: SamplingParams
    seed: int
    choice_index: int
    position: int


def draw_natively(library: CpuLibrary, logits: torch.Tensor, draws: Sequence[Draw], num_threads: int) -> list[int]:
    """One token id per draw. `logits` is [num_logits, vocab_size] float32, -inf for tokens that must not be drawn.

    The distributions are those of `draw_tokens`, and so is the token, but for draws that rounding decides: there, sums
    of small weights are taken in float32. Raises EngineError for logits with no finite maximum.
    """
    if logits.stride(1) != 1:
        logits = logits.contiguous()
    rows = (DrawRow * len(draws))(
        *(
            DrawRow(
                draw.logits_row,
                draw.sampling.temperature,
                draw.sampling.min_p,
                draw.sampling.top_p,
                max(0, draw.sampling.top_k),
                draw.seed,
                draw.choice_index,
                draw.position,
            )
            for draw in draws
        )
    )
    token_ids = (ctypes.c_int64 * len(draws))()
    call = DrawCall(
        logits=logits.data_ptr(),
        logits_stride=logits.stride(0),
        vocab_size=logits.shape[1],
        rows=rows,
        num_rows=len(draws),
        token_ids=token_ids,
    )
    library.draw(call, min(num_threads, len(draws)))
    if min(token_ids) < 0:
        raise EngineError("logits that are not finite leave no token to draw")
    return list(token_ids)
