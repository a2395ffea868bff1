"""What a worker learns of a model before it loads it, and what it may ask for."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from common.config import DType, EngineConfig
from common.errors import ConfigError
from common.model.loader import describe_model, load_model
from tests.support.models import SIZES, save_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "small-llama", "llama")
    return tmp_path / "small-llama"


def config(folder: Path, **changes: object) -> EngineConfig:
    return EngineConfig(model=str(folder), device="cpu", **changes)  # type: ignore[arg-type]


def test_the_description_is_the_models_own(folder: Path) -> None:
    model = describe_model(config(folder))
    assert model.served_name == "small-llama"
    assert model.dtype == "float32"
    assert model.max_model_len == SIZES["max_position_embeddings"]
    assert model.eos_token_ids == {2}
    assert model.spec.groups[0].dtype == "float32"


def test_flags_override_it(folder: Path) -> None:
    wanted = config(folder, served_model_name="mine", dtype=DType.BFLOAT16, max_model_len=100, block_size=32)
    wide, model = describe_model(config(folder)), describe_model(wanted)
    assert (model.served_name, model.dtype, model.max_model_len) == ("mine", "bfloat16", 100)
    assert (model.spec.block_size, model.spec.groups[0].dtype) == (32, "bfloat16")
    assert model.weight_bytes * 2 == wide.weight_bytes
    assert model.fingerprint == wide.fingerprint


def test_loading_says_what_and_with_which_backend(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        description = describe_model(config(folder, dtype=DType.BFLOAT16, attention_backend="torch"))
        model = load_model(description)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert sum(parameter.numel() * 2 for parameter in model.parameters()) == description.weight_bytes
    assert "attention backend: torch" in caplog.text
    assert "loaded small-llama in bfloat16 on cpu" in caplog.text


@pytest.mark.parametrize("max_model_len", [1, 257])
def test_a_length_that_the_model_does_not_have_is_refused(folder: Path, max_model_len: int) -> None:
    with pytest.raises(ConfigError, match="max_model_len: must be from 2 to the model's 256"):
        describe_model(config(folder, max_model_len=max_model_len))


@pytest.mark.parametrize("device", ["tpu", "mps", "gpu:0"])
def test_an_unknown_device_is_refused(folder: Path, device: str) -> None:
    with pytest.raises(ConfigError, match="device: must be auto, cpu, cuda or cuda:N"):
        describe_model(EngineConfig(model=str(folder), device=device))
