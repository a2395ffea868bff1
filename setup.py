"""Builds the native CPU kernels with the package, where there is a compiler. Everything else is in pyproject.toml."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from setuptools import Command, Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build

CPU_KERNELS = Path("common/kernels/cpu")


def load_builder() -> ModuleType:
    """The package is not importable yet: this folder is on no path."""
    path = Path(__file__).parent / CPU_KERNELS / "build.py"
    spec = importlib.util.spec_from_file_location("native_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class BuildNative(Command):
    """A step of `build`. Without a compiler it says so and builds nothing."""

    description = "build the native CPU kernels"
    user_options: list[Any] = []  # noqa: RUF012
    editable_mode = False
    build_lib: str | None = None

    def initialize_options(self) -> None:
        self.build_lib = None

    def finalize_options(self) -> None:
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        builder = load_builder()
        try:
            builder.build(self._folder())
        except builder.BuildError as error:
            sys.stderr.write(f"no native kernels: {error}\n")

    def get_outputs(self) -> list[str]:
        library = self._folder() / load_builder().LIBRARY_NAME
        return [str(library)] if library.exists() else []

    def get_source_files(self) -> list[str]:
        return [str(path) for path in sorted((CPU_KERNELS / "csrc").iterdir())]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def _folder(self) -> Path:
        assert self.build_lib is not None
        return CPU_KERNELS if self.editable_mode else Path(self.build_lib) / CPU_KERNELS


class NativeDistribution(Distribution):
    """Of one platform where the library will be built."""

    def has_ext_modules(self) -> bool:
        builder = load_builder()
        try:
            builder.find_compiler()
        except builder.BuildError:
            return False
        return True


class AnyPythonWheel(bdist_wheel):
    """The library is called through ctypes, so that any Python will do."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


build.sub_commands.append(("build_native", None))

setup(distclass=NativeDistribution, cmdclass={"build_native": BuildNative, "bdist_wheel": AnyPythonWheel})
