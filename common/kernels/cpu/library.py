"""Loads the native library, and says why where it can't be."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

import torch

from common.kernels.cpu.abi import ABI_VERSION, DTYPES, ISA_NAMES, AttentionCall, DrawCall, LinearCall, StepCall
from common.kernels.cpu.build import BUILD_COMMAND, HERE, LIBRARY_NAME, SOURCES, is_current

# GCC's, LLVM's and Intel's OpenMP libraries; all offer the functions that are needed.
OPENMP_NAMES = ("libgomp", "libomp", "libiomp5")


class NativeUnavailable(Exception):
    """Says why the native kernels can't be used, and what to do."""


class CpuLibrary:
    """The library's functions for one instruction set. Calls release the GIL and use torch's threads.

    `scratch` grows to what the largest call needed and belongs to whoever made this object, one thread at a time.
    """

    def __init__(self, library: ctypes.CDLL, isa: int) -> None:
        self.isa = isa
        self.isa_name = ISA_NAMES[isa]
        self.panel_columns: int = library.slipstream_panel_columns(isa)
        self._library = library
        self._scratch = torch.empty(0, dtype=torch.uint8)

    @staticmethod
    def load(isa: int | None = None) -> CpuLibrary:
        """For the best instruction set of this CPU, or the one named. Raises NativeUnavailable."""
        library = _open(HERE / LIBRARY_NAME)
        best: int = library.slipstream_best_isa()
        if best == 0:
            raise NativeUnavailable("this CPU has neither AVX-512 with bfloat16 nor AVX2 with FMA")
        if isa is not None and isa > best:
            raise NativeUnavailable(f"this CPU has no {ISA_NAMES[isa]}")
        return CpuLibrary(library, best if isa is None else isa)

    def linear(self, dtype: torch.dtype, call: LinearCall) -> None:
        """Fills in the call's scratch."""
        code = DTYPES[dtype]
        num_bytes = self._library.slipstream_linear_scratch_bytes(self.isa, code, call.num_rows, call.weight.depth)
        call.scratch = self._scratch_of(num_bytes)
        self._library.slipstream_linear(self.isa, code, torch.get_num_threads(), byref(call))

    def attention(self, dtype: torch.dtype, call: AttentionCall) -> None:
        """Fills in the call's scratch."""
        code, num_threads = DTYPES[dtype], torch.get_num_threads()
        num_bytes = self._library.slipstream_attention_scratch_bytes(self.isa, code, num_threads, byref(call))
        call.scratch = self._scratch_of(num_bytes)
        self._library.slipstream_attention(self.isa, code, num_threads, byref(call))

    def step(self, dtype: torch.dtype, call: StepCall) -> None:
        """Fills in the call's scratch."""
        code, num_threads = DTYPES[dtype], torch.get_num_threads()
        num_bytes = self._library.slipstream_step_scratch_bytes(self.isa, code, num_threads, byref(call))
        call.scratch = self._scratch_of(num_bytes)
        self._library.slipstream_step(self.isa, code, num_threads, byref(call))

    def draw(self, call: DrawCall, num_threads: int) -> None:
        """Fills in the call's scratch."""
        call.scratch = self._scratch_of(self._library.slipstream_draw_scratch_bytes(self.isa, num_threads, byref(call)))
        self._library.slipstream_draw(self.isa, num_threads, byref(call))

    def copy_past_cache(self, destination: int, source: int, num_bytes: int) -> None:
        """Addresses that do not overlap. Other threads see the bytes when it returns; uses this thread alone."""
        self._library.slipstream_copy_past_cache(destination, source, num_bytes)

    def read_memory(self, buffer: torch.Tensor) -> None:
        """Reads it once, as fast as this machine can."""
        self._library.slipstream_read_memory(self.isa, torch.get_num_threads(), buffer.data_ptr(), buffer.nbytes)

    def multiply_registers(self, dtype: torch.dtype, count: int) -> int:
        """Multiplies as fast as this machine can, without memory; returns the number of operations of each thread."""
        code = DTYPES[dtype]
        per_step: int = self._library.slipstream_multiply_registers(self.isa, code, torch.get_num_threads(), count)
        return per_step * count

    def _scratch_of(self, num_bytes: int) -> int:
        if self._scratch.numel() < num_bytes:
            self._scratch = torch.empty(num_bytes, dtype=torch.uint8)
        return self._scratch.data_ptr()


def _open(path: Path) -> ctypes.CDLL:
    if not path.exists():
        raise NativeUnavailable(
            f"the native library was not built; install a C++ compiler such as g++, then run `{BUILD_COMMAND}`"
        )
    if SOURCES.exists() and not is_current(path):
        raise NativeUnavailable(f"{path} was built from other sources than these; run `{BUILD_COMMAND}`")
    try:
        library = ctypes.CDLL(str(path))
        library.slipstream_abi_version.restype = c_int
        found = library.slipstream_abi_version()
    except (OSError, AttributeError) as error:
        raise NativeUnavailable(f"{path} can't be loaded ({error}); run `{BUILD_COMMAND}`") from error
    if found != ABI_VERSION:
        raise NativeUnavailable(
            f"{path} speaks version {found} of its interface, not {ABI_VERSION}; run `{BUILD_COMMAND}`"
        )
    _declare(library)
    _hand_over_openmp(library, ctypes.CDLL(str(openmp_path())))
    return library


def _hand_over_openmp(library: ctypes.CDLL, openmp: ctypes.CDLL) -> None:
    try:
        functions = (openmp.GOMP_parallel, openmp.omp_get_thread_num, openmp.omp_get_num_threads)
    except AttributeError as error:
        raise NativeUnavailable(f"torch's OpenMP library is of another kind ({error})") from error
    library.slipstream_use_openmp(*(ctypes.cast(function, c_void_p) for function in functions))


def openmp_path() -> Path:
    """The OpenMP library that torch has loaded. Raises NativeUnavailable where it has none."""
    loaded = loaded_openmp()
    beside_torch = [path for path in loaded if path.is_relative_to(Path(torch.__file__).parent)]
    if not loaded:
        raise NativeUnavailable("this build of torch uses no OpenMP library, whose threads native kernels share")
    return (beside_torch or loaded)[0]


def loaded_openmp() -> list[Path]:
    """Every OpenMP library in this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        files = dict.fromkeys(line.split(maxsplit=5)[5].strip() for line in maps if line.count("/"))
    return [Path(file) for file in files if Path(file).name.startswith(OPENMP_NAMES)]


def _declare(library: ctypes.CDLL) -> None:
    for name, result, arguments in (
        ("source_digest", c_char_p, ()),
        ("use_openmp", None, (c_void_p,) * 3),
        ("best_isa", c_int, ()),
        ("panel_columns", c_int, (c_int,)),
        ("linear", None, (c_int, c_int, c_int, POINTER(LinearCall))),
        ("linear_scratch_bytes", c_int64, (c_int, c_int, c_int64, c_int64)),
        ("attention", None, (c_int, c_int, c_int, POINTER(AttentionCall))),
        ("attention_scratch_bytes", c_int64, (c_int, c_int, c_int, POINTER(AttentionCall))),
        ("step", None, (c_int, c_int, c_int, POINTER(StepCall))),
        ("step_scratch_bytes", c_int64, (c_int, c_int, c_int, POINTER(StepCall))),
        ("draw", None, (c_int, c_int, POINTER(DrawCall))),
        ("draw_scratch_bytes", c_int64, (c_int, c_int, POINTER(DrawCall))),
        ("copy_past_cache", None, (c_void_p, c_void_p, c_int64)),
        ("read_memory", c_int64, (c_int, c_int, c_void_p, c_int64)),
        ("multiply_registers", c_int64, (c_int, c_int, c_int, c_int64)),
    ):
        function = getattr(library, f"slipstream_{name}")
        function.restype, function.argtypes = result, arguments
