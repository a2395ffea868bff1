"""Numbers that are not finite are found, row by row, in every type that a model computes in."""

from __future__ import annotations

import pytest
import torch

from common.engine.finite import finite_rows, peaks

INFINITE, NO_NUMBER = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wrong", [INFINITE, -INFINITE, NO_NUMBER])
def test_a_row_with_one_wrong_number_is_found(dtype: torch.dtype, wrong: float) -> None:
    rows = torch.randn(3, 40).to(dtype)
    rows[0, 0], rows[2, 7] = torch.finfo(dtype).max, torch.finfo(dtype).min
    assert finite_rows(rows).tolist() == [True, True, True]
    rows[1, 39] = wrong
    assert finite_rows(rows).tolist() == [True, False, True]


def test_the_first_of_the_greatest_is_the_peak() -> None:
    found = peaks(torch.tensor([[1.0, 3.0, 3.0], [-1.0, -2.0, -INFINITE]]))
    assert found.token_ids == [1, 0]
    assert found.is_finite == [True, True]


@pytest.mark.parametrize("row", [[0.0, NO_NUMBER, 9.0], [0.0, INFINITE, 9.0], [-INFINITE] * 3])
def test_a_peak_that_is_not_finite_is_told(row: list[float]) -> None:
    assert peaks(torch.tensor([[1.0, 2.0, 3.0], row])).is_finite == [True, False]
