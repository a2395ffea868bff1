"""A GGUF file as a Hugging Face folder that every engine, peer and reference reads.

Converted once, in a process of its own: it takes torch and seconds, and callers of this module have neither.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import common
from common.checkpoint.cache import cache_folder, made_once
from common.errors import UnsupportedModelError

logger = logging.getLogger(__name__)

# Part of the cached folder's name: raise it whenever the converter writes something else.
CONVERTER_VERSION = 1
SAMPLE_BYTES = 2**20


def converted_folder(gguf: Path) -> Path:
    """The folder with bf16 safetensors, config, tokenizer and chat template. Raises UnsupportedModelError."""
    folder = cache_folder() / f"{gguf.stem}-{_digest(gguf)}-v{CONVERTER_VERSION}"
    return made_once(folder, lambda making: _convert(gguf, making))


def _convert(gguf: Path, folder: Path) -> None:
    logger.info("converting %s (once)", gguf.name)
    root = str(Path(common.__file__).parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    done = subprocess.run(
        [sys.executable, "-m", "common.model.convert_gguf", str(gguf), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(paths)},
    )
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise UnsupportedModelError(f"{gguf.name} could not be converted: {last_line}")


def _digest(gguf: Path) -> str:
    """Tells files apart by size and samples: reading tens of gigabytes at each start would be too much."""
    size = gguf.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=8)
    with open(gguf, "rb") as file:
        for offset in (0, size // 2, max(0, size - SAMPLE_BYTES)):
            file.seek(offset)
            digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()
