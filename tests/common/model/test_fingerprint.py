"""Two models share a fingerprint only when they would compute the same keys and values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from common.model.architecture import ArchitectureConfig
from common.model.checkpoint import Checkpoint
from common.model.fingerprint import model_fingerprint
from tests.support.models import FAMILIES, make_model, save_model


def fingerprint(folder: Path) -> bytes:
    return model_fingerprint(ArchitectureConfig.load(folder), Checkpoint.open(folder))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "one", "llama")
    return tmp_path / "one"


def test_the_same_model_has_the_same(folder: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "copy", "llama")
    assert fingerprint(folder) == fingerprint(tmp_path / "copy")
    assert len(fingerprint(folder)) == 16


def test_another_training_of_the_same_shape_has_another(folder: Path, tmp_path: Path) -> None:
    save_model(tmp_path / "tuned", "llama", seed=6)
    assert fingerprint(folder) != fingerprint(tmp_path / "tuned")


@pytest.mark.parametrize("name", ["model.layers.2.mlp.down_proj.weight", "model.norm.weight"])
def test_one_changed_tensor_changes_it(folder: Path, name: str) -> None:
    before = fingerprint(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors[name] *= 1.01
    save_file(tensors, folder / "model.safetensors")
    assert fingerprint(folder) != before


@pytest.mark.parametrize(
    ("field", "value", "changes"),
    [("transformers_version", "4.0.0", False), ("rms_norm_eps", 1e-5, True), ("use_cache", False, False)],
)
def test_only_config_that_matters_changes_it(folder: Path, field: str, value: object, changes: bool) -> None:
    before = fingerprint(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: value}))
    assert (fingerprint(folder) != before) is changes


def test_shards_do_not_matter(folder: Path, tmp_path: Path) -> None:
    make_model(FAMILIES["llama"]).save_pretrained(tmp_path / "sharded", max_shard_size="100KB")
    assert fingerprint(folder) == fingerprint(tmp_path / "sharded")
