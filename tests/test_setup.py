"""What an ordinary install builds."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from common.kernels.cpu import build

ROOT = Path(__file__).parent.parent
COPIED = (
    "setup.py",
    "pyproject.toml",
    "README.md",
    "common",
    "protos",
    "router",
    "prefill_worker",
    "decode_worker",
    "slipstream",
)
ONE_WHEEL = "from setuptools import build_meta; import sys; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The sources, with the library as it is here, so that nothing is compiled."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        else:
            shutil.copy(source, checkout / name)
    return checkout


def build_wheel(checkout: Path, **environment: str) -> Path:
    dist = checkout / "dist"
    dist.mkdir()
    subprocess.run([sys.executable, "-c", ONE_WHEEL, str(dist)], cwd=checkout, check=True, env=environment)
    (wheel,) = dist.glob("*.whl")
    return wheel


def has_compiler() -> bool:
    try:
        build.find_compiler()
    except build.BuildError:
        return False
    return True


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_what_is_installed_here_was_built_of_these_sources() -> None:
    """An install goes on when the compiler fails, and the kernels' own tests are left out then."""
    assert build.is_current(build.HERE / build.LIBRARY_NAME), "build it: make native"


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
def test_a_wheel_contains_the_library(checkout: Path) -> None:
    library = build.HERE / build.LIBRARY_NAME
    folder = f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}/common/kernels/cpu"
    target = checkout / folder / build.LIBRARY_NAME
    target.parent.mkdir(parents=True)
    if library.exists():
        shutil.copy(library, target)  # current: the build step leaves it
    wheel = build_wheel(checkout, PATH="/usr/bin:/bin")
    assert f"common/kernels/cpu/{build.LIBRARY_NAME}" in zipfile.ZipFile(wheel).namelist()
    assert "py3-none-linux" in wheel.name


def test_without_a_compiler_there_is_a_wheel_for_any_machine(checkout: Path) -> None:
    wheel = build_wheel(checkout, PATH="", CXX="no-such-compiler")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert wheel.name.endswith("py3-none-any.whl")
