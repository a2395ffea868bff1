"""The native kernels in each instruction set that this machine can run."""

from __future__ import annotations

import pytest

from common.kernels.cpu.abi import ISA_NAMES
from common.kernels.cpu.library import CpuLibrary, NativeUnavailable


def native_library(isa_name: str) -> CpuLibrary:
    """Skips the test where the library or the instruction set is missing."""
    isa = next(number for number, name in ISA_NAMES.items() if name == isa_name)
    try:
        return CpuLibrary.load(isa)
    except NativeUnavailable as error:
        pytest.skip(str(error))
