"""From what a person writes after --model to a folder with the model's files."""

from __future__ import annotations

import re
from pathlib import Path

from common.checkpoint import demo
from common.checkpoint.gguf import converted_folder
from common.errors import ConfigError

DEMO = "demo"
HUB_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_model(model: str) -> Path:
    """The folder of a model: 'demo', a local folder, a GGUF file or a hub id, which is downloaded.

    The hub is asked where HF_ENDPOINT says, and not at all with HF_HUB_OFFLINE. Raises ConfigError that says what
    `model` may be, UnsupportedModelError when a GGUF file can't be converted.
    """
    if model == DEMO:
        return converted_folder(demo.demo_gguf())
    path = Path(model).expanduser()
    if path.is_file() and path.suffix == ".gguf":
        return converted_folder(path)
    if model and path.is_dir():
        if not (path / "config.json").is_file():
            raise ConfigError("model", f"the folder {model} has no config.json")
        return path.resolve()
    if path.exists() or not _HUB_ID.fullmatch(model):
        raise ConfigError("model", f"must be 'demo', a model folder, a .gguf file or a hub id, is {model!r}")
    return _download(model)


def served_name(model: str, folder: Path) -> str:
    """The name that callers use when the operator gives none."""
    if model == DEMO:
        return demo.NAME
    path = Path(model).expanduser()
    if path.is_file():
        return path.stem
    return folder.name if path.is_dir() else model


def _download(model: str) -> Path:
    # Only who needs the hub pays for its import.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(HUB_PATTERNS)))
    except Exception as error:
        raise ConfigError("model", f"{model!r} is no local path, and the hub did not give it: {error}") from error
