"""The virtual environment of a peer: made once in the cache folder, with pinned versions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.speed.contender import ContenderError
from common.checkpoint.cache import cache_folder

STAMP_NAME = "made.txt"
MAX_TOLD_CHARACTERS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerEnvironment:
    """What pip installs, and what it is to take away again. `name` is the folder's, and the peer's."""

    name: str
    packages: tuple[str, ...]
    removed: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)  # while it installs

    @property
    def folder(self) -> Path:
        return cache_folder() / "peers" / self.name

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def is_made(self) -> bool:
        return self._stamp.is_file() and self._stamp.read_text(encoding="utf-8") == self._recipe

    def make(self, timeout_s: float) -> None:
        """Of no effect when it is there. Raises ContenderError. Goes on where a run that was stopped left off."""
        if self.is_made:
            return
        print(f"making {self.folder}: {' '.join(self.packages)}", file=sys.stderr)
        if not self.python.exists():
            self._run([sys.executable, "-m", "venv", str(self.folder)], timeout_s)
        self._pip(["install", "--quiet", *self.packages], timeout_s)
        if self.removed:
            self._pip(["uninstall", "--quiet", "--yes", *self.removed], timeout_s)
        self._stamp.write_text(self._recipe, encoding="utf-8")

    @property
    def _stamp(self) -> Path:
        return self.folder / STAMP_NAME

    @property
    def _recipe(self) -> str:
        return f"install {' '.join(self.packages)}\nremove {' '.join(self.removed)}\n"

    def _pip(self, arguments: list[str], timeout_s: float) -> None:
        self._run([str(self.python), "-m", "pip", *arguments], timeout_s)

    def _run(self, command: list[str], timeout_s: float) -> None:
        environment = {**os.environ, **self.variables}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=timeout_s, env=environment
            )
        except subprocess.TimeoutExpired:
            raise ContenderError(f"{' '.join(command[:5])} took more than {timeout_s:g} s") from None
        if done.returncode:
            told = (done.stderr.strip() or done.stdout.strip())[-MAX_TOLD_CHARACTERS:]
            raise ContenderError(f"{' '.join(command[:5])} failed: {told}")
