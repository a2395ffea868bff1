"""Files of weights: whole, sharded, cut short, pickled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from common.errors import UnsupportedModelError
from common.model.checkpoint import Checkpoint
from tests.support.models import FAMILIES, make_model, save_model


def test_entries_are_the_files(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5, dtype=torch.bfloat16)}, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    assert {name: (entry.dtype, entry.shape) for name, entry in checkpoint.entries.items()} == {
        "a": ("float32", (3, 4)),
        "b": ("bfloat16", (5,)),
    }
    assert checkpoint.num_elements == 17
    assert checkpoint.dtype == "float32"
    raw = (tmp_path / "model.safetensors").read_bytes()
    entry = checkpoint.entries["a"]
    assert raw[entry.offset : entry.offset + entry.num_bytes] == bytes(48)


def test_a_sharded_checkpoint_reads_as_one(tmp_path: Path) -> None:
    model = make_model(FAMILIES["llama"])
    model.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    checkpoint = Checkpoint.open(tmp_path)
    with checkpoint.reader() as reader:
        for name, tensor in model.state_dict().items():
            assert torch.equal(reader.read(name), tensor)


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    make_model(FAMILIES["llama"]).save_pretrained(tmp_path, max_shard_size="100KB")
    shard = min(tmp_path.glob("*.safetensors"))
    shard.unlink()
    with pytest.raises(UnsupportedModelError, match=shard.name):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("num_bytes", [0, 5, 40, -20])
def test_a_file_cut_short_is_refused(tmp_path: Path, num_bytes: int) -> None:
    save_model(tmp_path, "llama")
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(UnsupportedModelError, match=r"model\.safetensors"):
        Checkpoint.open(tmp_path)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth"])
def test_pickled_weights_are_refused(tmp_path: Path, name: str) -> None:
    torch.save({"a": torch.zeros(1)}, tmp_path / name)
    with pytest.raises(UnsupportedModelError, match=rf"pickled weights \({name}\).*safetensors"):
        Checkpoint.open(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="no"):
        Checkpoint.open(tmp_path)


def test_quantised_tensors_are_refused(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, dtype=torch.int8)}, tmp_path / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match="holds a as I8"):
        Checkpoint.open(tmp_path)


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "model.safetensors")
    with Checkpoint.open(tmp_path).reader() as reader, pytest.raises(UnsupportedModelError, match="no tensor b"):
        reader.read("b")
