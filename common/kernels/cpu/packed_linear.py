"""A linear layer's weight in panels, and its product with a few rows. csrc/panels.h describes the layout."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from common.kernels.cpu.abi import LinearCall, Matrix
from common.kernels.cpu.huge_pages import HugeArena
from common.kernels.cpu.library import CpuLibrary

DEPTH_UNIT = 8  # as in csrc/isa.h
STEP_DEPTHS = {torch.float32: 1, torch.bfloat16: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLinear:
    """A weight that the native kernels read. With `silu_gate` it gives silu(gate) * up of its two halves."""

    panels: torch.Tensor  # [num_panels, depth / step, panel_columns, step]
    bias: torch.Tensor | None  # [num_panels * panel_columns] float32
    num_outputs: int
    depth: int
    silu_gate: bool

    @property
    def matrix(self) -> Matrix:
        """Points into this object's tensors."""
        return Matrix(
            self.panels.data_ptr(), None if self.bias is None else self.bias.data_ptr(), self.num_outputs, self.depth
        )

    def __call__(self, library: CpuLibrary, hidden: torch.Tensor, *, float_output: bool = False) -> torch.Tensor:
        """[num_rows, depth] -> [num_rows, num_outputs] in hidden's dtype or, with `float_output`, float32."""
        assert hidden.dtype == self.panels.dtype and hidden.stride(-1) == 1 and hidden.shape[-1] == self.depth
        dtype = torch.float32 if float_output else hidden.dtype
        output = torch.empty(hidden.shape[0], self.num_outputs, dtype=dtype)
        call = LinearCall(
            input=hidden.data_ptr(),
            input_stride=hidden.stride(0),
            num_rows=hidden.shape[0],
            weight=self.matrix,
            output=output.data_ptr(),
            output_stride=self.num_outputs,
            float_output=float_output,
            silu_gate=self.silu_gate,
        )
        library.linear(hidden.dtype, call)
        return output


def packed_bytes(num_rows: int, depth: int, panel_columns: int, itemsize: int) -> int:
    """At most what a weight of [num_rows, depth] takes, with the padding of both halves of a gate."""
    padded_rows = -(-num_rows // panel_columns) * panel_columns + panel_columns
    return padded_rows * _round_up(depth, DEPTH_UNIT) * itemsize + 64


def pack_linear(
    weight: torch.Tensor,  # [num_outputs, depth]; with `silu_gate` the gate's rows, then as many of up
    bias: torch.Tensor | None,  # [num_outputs]
    *,
    panel_columns: int,
    silu_gate: bool = False,
    arena: HugeArena | None = None,
) -> PackedLinear:
    """Lays a weight out in panels. The arena, if any, gives the memory."""
    num_outputs, depth = weight.shape
    columns = _panel_rows(weight, panel_columns, silu_gate)  # [num_panels, panel_columns, depth]
    step = STEP_DEPTHS[weight.dtype]
    padded = torch.nn.functional.pad(columns, (0, -depth % DEPTH_UNIT))
    steps = padded.view(columns.shape[0], panel_columns, -1, step).transpose(1, 2)
    return PackedLinear(
        panels=steps.contiguous() if arena is None else arena.place(steps),
        bias=None if bias is None else _panel_rows(bias.float()[:, None], panel_columns, silu_gate).flatten(),
        num_outputs=num_outputs // 2 if silu_gate else num_outputs,
        depth=depth,
        silu_gate=silu_gate,
    )


def _panel_rows(rows: torch.Tensor, panel_columns: int, silu_gate: bool) -> torch.Tensor:
    """[num_rows, depth] -> [num_panels, panel_columns, depth], padded with zeros; gates and ups share each panel."""
    if silu_gate:
        halves = [_panel_rows(half, panel_columns // 2, False) for half in rows.chunk(2)]
        return torch.cat(halves, dim=1)
    padded = torch.nn.functional.pad(rows, (0, 0, 0, -rows.shape[0] % panel_columns))
    return padded.view(-1, panel_columns, rows.shape[1])


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
