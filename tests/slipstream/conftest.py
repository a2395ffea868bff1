from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.index.server import EmbeddedIndexServer
from tests.support.scripted_router import ScriptedRouter

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 8,
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "max_position_embeddings": 8,
}


@pytest.fixture
def router() -> Iterator[ScriptedRouter]:
    scripted = ScriptedRouter()
    yield scripted
    scripted.stop()


@pytest.fixture
def second_router() -> Iterator[ScriptedRouter]:
    scripted = ScriptedRouter()
    yield scripted
    scripted.stop()


@pytest.fixture(scope="session")
def index_url() -> Iterator[str]:
    with EmbeddedIndexServer() as server:
        yield server.url


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model; the fakes read nothing of it."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(b"")
    return folder
