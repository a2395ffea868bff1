from collections.abc import Iterator

import pytest
import torch

from common.kernels.cpu.abi import ISA_NAMES
from common.kernels.cpu.library import CpuLibrary
from tests.support.native import native_library


@pytest.fixture(params=ISA_NAMES.values())
def library(request: pytest.FixtureRequest) -> CpuLibrary:
    return native_library(request.param)


@pytest.fixture(params=[1, 2, 3], autouse=True)
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
