"""Copies past the cache: every byte, and none beside them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.kernels.cpu.copy import Copier
from tests.support.native import native_library


@pytest.fixture(params=[1], autouse=True)
def num_threads() -> None:
    """They use one."""


@pytest.fixture(params=["native", "numpy"])
def copier(request: pytest.FixtureRequest) -> Copier:
    return Copier(native_library("avx2") if request.param == "native" else None)


@pytest.mark.parametrize("num_bytes", [0, 1, 63, 64, 65, 127, 128, 1000, 70_001])
@pytest.mark.parametrize("offset", [0, 1, 37, 64])
@pytest.mark.parametrize("source_offset", [0, 3])
def test_copies_what_was_asked_for_and_nothing_else(
    copier: Copier, num_bytes: int, offset: int, source_offset: int
) -> None:
    source = np.random.default_rng(num_bytes).integers(1, 256, source_offset + num_bytes, np.uint8)[source_offset:]
    destination = torch.zeros(2, 35_100, dtype=torch.uint8)
    copier.copy_past_cache(source, destination, offset)
    expected = np.zeros(destination.numel(), np.uint8)
    expected[offset : offset + num_bytes] = source
    assert (destination.view(-1).numpy() == expected).all()


@pytest.mark.parametrize("offset", [-1, 37])
def test_nothing_is_copied_outside(copier: Copier, offset: int) -> None:
    with pytest.raises(AssertionError):
        copier.copy_past_cache(np.ones(64, np.uint8), torch.zeros(100, dtype=torch.uint8), offset)
