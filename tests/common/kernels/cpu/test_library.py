"""The library in a process: what it loads, and how it says that it can't."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from common.kernels.cpu import build
from common.kernels.cpu.library import CpuLibrary, loaded_openmp

COMPUTE_BOTH = """
import torch
from common.kernels.cpu.library import CpuLibrary, loaded_openmp
from common.kernels.cpu.packed_linear import pack_linear
torch.set_num_threads(2)
library = CpuLibrary.load()
weight, hidden = torch.randn(64, 64), torch.randn(4, 64)
pack_linear(weight, None, panel_columns=library.panel_columns)(library, hidden)
torch.randn(512, 512) @ torch.randn(512, 512)
print(*loaded_openmp(), sep="\\n")
"""


@pytest.fixture(params=[1], autouse=True)
def num_threads() -> None:
    """Once is enough here."""


def test_one_openmp_library_serves_torch_and_the_kernels(library: CpuLibrary) -> None:
    done = subprocess.run([sys.executable, "-c", COMPUTE_BOTH], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 1


def test_the_library_links_no_openmp_of_its_own(library: CpuLibrary) -> None:
    assert loaded_openmp()
    assert b"libgomp" not in (build.HERE / build.LIBRARY_NAME).read_bytes()


def test_a_machine_without_a_compiler_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.BuildError, match="install g\\+\\+"):
        build.find_compiler()


def test_a_named_compiler_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(build.BuildError, match="no-such-compiler"):
        build.build(tmp_path)


def test_a_compiler_that_fails_without_a_word_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(build.CompileError, match="false failed: exit status 1"):
        build.build(tmp_path)


@pytest.mark.parametrize(("compiler", "exit_code"), [("no-such-compiler", 0), ("false", 1)])
def test_a_compiler_that_fails_is_an_error_and_a_missing_one_is_not(
    compiler: str, exit_code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", compiler)
    assert build.main(tmp_path) == exit_code
    assert compiler in capsys.readouterr().err


def test_a_named_compiler_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "true --some 'of them'")
    assert build.find_compiler() == ["true", "--some", "of them"]


def test_only_changed_sources_are_built_again(
    library: CpuLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = tmp_path / build.LIBRARY_NAME
    shutil.copy(build.HERE / build.LIBRARY_NAME, current)
    assert build.is_current(current)
    sources = tmp_path / "csrc"
    shutil.copytree(build.SOURCES, sources)
    monkeypatch.setattr(build, "SOURCES", sources)
    assert build.is_current(current)
    (sources / "linear.h").write_text("// changed")
    assert not build.is_current(current)
