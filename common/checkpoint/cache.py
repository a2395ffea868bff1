"""The folder in which prepared models are kept, and the lock under which one is made."""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

CACHE_VARIABLE = "SLIPSTREAM_CACHE"


def cache_folder() -> Path:
    """$SLIPSTREAM_CACHE, or ~/.cache/slipstream."""
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "slipstream")


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """`folder`, filled by `make` when it is not there yet.

    `make` fills a temporary folder beside it, which is renamed when it is complete: a folder that exists is whole,
    whatever was killed when. Other processes that want the same folder wait.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(folder.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        for left_over in folder.parent.glob(f"{glob.escape(folder.name)}.making-*"):  # by one that was killed
            shutil.rmtree(left_over, ignore_errors=True)
        making = Path(tempfile.mkdtemp(prefix=folder.name + ".making-", dir=folder.parent))
        try:
            make(making)
            making.chmod(0o755)
            making.rename(folder)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return folder
