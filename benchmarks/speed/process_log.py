"""What a child process prints, for when it fails."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

NUM_TOLD_LINES = 15


class ProcessLog:
    """A file that is gone after close. `fileno` is what the child writes to."""

    def __init__(self) -> None:
        self.fileno, path = tempfile.mkstemp(prefix="slipstream-speed-")
        self._path = Path(path)

    def tail(self) -> str:
        return "\n".join(self._path.read_text(encoding="utf-8", errors="replace").splitlines()[-NUM_TOLD_LINES:])

    def close(self) -> None:
        os.close(self.fileno)
        self._path.unlink()
