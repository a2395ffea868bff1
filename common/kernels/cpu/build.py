"""Builds the native library: `make native`, `python -m common.kernels.cpu.build`, and the hook in setup.py.

Uses the standard library alone, for it runs where nothing is installed yet. Without a compiler there is no library, and
everything works with torch's kernels.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "csrc"
LIBRARY_NAME = "libslipstream_cpu.so"
COMPILERS = ("g++", "c++", "clang++")
# No -march: what the build machine has is not what the library will run on. No -ffast-math: NaN must stay NaN.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti", "-w")
INSTRUCTION_SETS = {
    "avx2": ("-mavx2", "-mfma"),
    "avx512_bf16": ("-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16"),
}
KERNEL_SOURCES = ("linear.cpp", "attention.cpp", "step.cpp", "draw.cpp", "limits.cpp", "table.cpp")
COMMON_SOURCES = ("library.cpp", "copy.cpp")  # once, for any x86-64
BUILD_COMMAND = "python -m common.kernels.cpu.build"  # works from a wheel too, which has no Makefile
NO_COMPILER = f"no C++ compiler was found; install g++, or name one in CXX, then run `{BUILD_COMMAND}`"


class BuildError(Exception):
    """Says why there is no library, and what to do."""


class CompileError(BuildError):
    """There is a compiler, and it failed."""


def source_digest() -> str:
    """Changes with any source, and with how they are compiled."""
    digest = hashlib.sha256(repr((FLAGS, INSTRUCTION_SETS, KERNEL_SOURCES, COMMON_SOURCES)).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def is_current(library: Path) -> bool:
    return library.exists() and f"source-digest:{source_digest()}".encode() in library.read_bytes()


def build(folder: Path = HERE) -> Path:
    """Compiles into the folder unless the library there is current. Raises BuildError, and CompileError of its kind."""
    library = folder / LIBRARY_NAME
    if is_current(library):
        return library
    compiler = find_compiler()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = Path(scratch)
        list(pool.map(_run, [[*compiler, *arguments] for arguments in _compilations(objects)]))
        linked = objects / LIBRARY_NAME
        _run([*compiler, "-shared", "-o", str(linked), *map(str, sorted(objects.glob("*.o"))), "-lm"])
        linked.replace(library)
    return library


def find_compiler() -> list[str]:
    """Its command, which in CXX may have arguments. Raises BuildError where there is none, or no kernels for this
    kind of machine."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise BuildError(f"native kernels are for Linux on x86-64, not {sys.platform} on {platform.machine()}")
    named = os.environ.get("CXX")
    for command in (shlex.split(named),) if named else ([name] for name in COMPILERS):
        if command and shutil.which(command[0]):
            return command
    raise BuildError(f"CXX names {named}, which was not found" if named else NO_COMPILER)


def _compilations(objects: Path) -> list[list[str]]:
    """The largest first, so that none is left alone at the end."""
    commands = []
    for source in KERNEL_SOURCES:
        for isa, flags in INSTRUCTION_SETS.items():
            target = objects / f"{Path(source).stem}.{isa}.o"
            commands.append([*FLAGS, *flags, "-c", str(SOURCES / source), "-o", str(target)])
    digest = f'-DSLIPSTREAM_SOURCE_DIGEST="{source_digest()}"'
    for source in COMMON_SOURCES:
        target = objects / f"{Path(source).stem}.o"
        commands.append([*FLAGS, digest, "-c", str(SOURCES / source), "-o", str(target)])
    return commands


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = done.stderr.strip()[-2000:] or f"exit status {done.returncode}, and no word of why"
        raise CompileError(f"{command[0]} failed: {told}")


def main(folder: Path = HERE) -> int:
    """The exit code: 1 where the compiler failed; 0 also where there is none, for the library is a gain, not a need."""
    if is_current(folder / LIBRARY_NAME):
        return 0
    try:
        sys.stdout.write(f"built {build(folder)}\n")
    except BuildError as error:
        sys.stderr.write(f"no native kernels, all works without them, but slower: {error}\n")
        return 1 if isinstance(error, CompileError) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
