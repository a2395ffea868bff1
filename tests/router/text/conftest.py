"""Model folders of small tokenizers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.tokenizers import BUILDERS

FolderMaker = Callable[..., Path]


@pytest.fixture
def make_folder(tmp_path: Path) -> FolderMaker:
    """make_folder(kind, tokenizer_config={…}, files={name: text}) -> the model folder."""

    def make(kind: str, tokenizer_config: dict[str, Any] | None = None, files: dict[str, str] | None = None) -> Path:
        folder = tmp_path / kind
        folder.mkdir(exist_ok=True)
        BUILDERS[kind]().save(str(folder / "tokenizer.json"))
        if tokenizer_config is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
        for name, text in (files or {}).items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        return folder

    return make
