"""Products over panels against products in float64."""

import pytest
import torch

from common.kernels.cpu.library import CpuLibrary
from common.kernels.cpu.packed_linear import pack_linear

# (num_outputs, depth), some of them no multiple of a panel or of a step
SHAPES = [(96, 64), (100, 48), (6, 13), (34, 130), (192, 576)]
NUM_ROWS = [1, 2, 3, 5, 6, 7, 12, 13, 31, 70]


def operands(
    num_rows: int, shape: tuple[int, int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(hidden, weight, bias)"""
    generator = torch.Generator().manual_seed(num_rows)
    num_outputs, depth = shape
    hidden, weight, bias = (
        torch.randn(size, generator=generator) for size in ((num_rows, depth), shape, (num_outputs,))
    )
    return hidden.to(dtype), (weight * depth**-0.5).to(dtype), bias.to(dtype)


def exact(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return hidden.double() @ weight.double().T + bias.double()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_the_exact_product(library: CpuLibrary, shape: tuple[int, int], dtype: torch.dtype) -> None:
    for num_rows in NUM_ROWS:
        hidden, weight, bias = operands(num_rows, shape, dtype)
        packed = pack_linear(weight, bias, panel_columns=library.panel_columns)
        actual = packed(library, hidden, float_output=True)
        torch.testing.assert_close(actual.double(), exact(hidden, weight, bias), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.bfloat16, 2e-2)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gates_and_ups_in_one_product(
    library: CpuLibrary, shape: tuple[int, int], dtype: torch.dtype, tolerance: float
) -> None:
    for num_rows in NUM_ROWS:
        hidden, weight, bias = operands(num_rows, shape, dtype)
        packed = pack_linear(weight, bias, panel_columns=library.panel_columns, silu_gate=True)
        gate, up = exact(hidden, weight, bias).chunk(2, dim=-1)
        expected = gate / (1 + torch.exp(-gate)) * up
        torch.testing.assert_close(packed(library, hidden).double(), expected, atol=10 * tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_number_of_threads_changes_no_bit(library: CpuLibrary, dtype: torch.dtype) -> None:
    hidden, weight, bias = operands(7, (192, 576), dtype)
    packed = pack_linear(weight, bias, panel_columns=library.panel_columns)
    actual = packed(library, hidden)
    torch.set_num_threads(1)
    assert torch.equal(actual, packed(library, hidden))


def test_rows_of_a_wider_tensor(library: CpuLibrary) -> None:
    hidden, weight, bias = operands(5, (40, 24), torch.float32)
    packed = pack_linear(weight, bias, panel_columns=library.panel_columns)
    wide = torch.cat((hidden, hidden), dim=1)
    assert torch.equal(packed(library, wide[:, :24]), packed(library, hidden))


def test_numbers_that_are_not_finite_stay_so(library: CpuLibrary) -> None:
    hidden, weight, bias = operands(2, (64, 32), torch.float32)
    hidden[1, 3] = torch.nan
    for silu_gate in (False, True):
        packed = pack_linear(weight, bias, panel_columns=library.panel_columns, silu_gate=silu_gate)
        actual = packed(library, hidden)
        assert actual[0].isfinite().all() and actual[1].isnan().all()


def test_a_wrong_weight_is_noticed(library: CpuLibrary) -> None:
    hidden, weight, bias = operands(4, (64, 32), torch.float32)
    packed = pack_linear(weight, bias, panel_columns=library.panel_columns)
    weight[17, 5] += 0.1
    assert (packed(library, hidden).double() - exact(hidden, weight, bias)).abs().max() > 1e-3
