"""Each tensor of a checkpoint has its place, or the model is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from common.attention.torch_attention import TorchAttention
from common.errors import UnsupportedModelError
from common.model.architecture import ArchitectureConfig
from common.model.causal_lm import CausalLM
from common.model.checkpoint import Checkpoint
from common.model.weights import load_weights, parameter_sources
from tests.support.models import FAMILIES, save_model

Tensors = dict[str, torch.Tensor]


def make(folder: Path, dtype: torch.dtype = torch.float32) -> CausalLM:
    return CausalLM(
        ArchitectureConfig.load(folder), TorchAttention(), max_model_len=64, dtype=dtype, device=torch.device("cpu")
    )


def change(folder: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_parameter_and_every_tensor_is_used_once(tmp_path: Path, family: str) -> None:
    save_model(tmp_path, family)
    model = make(tmp_path)
    sources = list(parameter_sources(model.architecture))
    assert sorted(source.parameter for source in sources) == sorted(name for name, _ in model.named_parameters())
    tensors = [tensor for source in sources for tensor in source.tensors]
    assert sorted(tensors) == sorted(Checkpoint.open(tmp_path).entries)


def test_parameters_need_no_gradient_and_have_the_wanted_dtype(tmp_path: Path) -> None:
    save_model(tmp_path, "qwen3")
    model = make(tmp_path, torch.bfloat16)
    load_weights(model, Checkpoint.open(tmp_path))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    change(tmp_path, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(UnsupportedModelError, match=r"no tensor model\.layers\.1\.mlp\.up_proj\.weight"):
        load_weights(make(tmp_path), Checkpoint.open(tmp_path))


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    change(tmp_path, lambda tensors: tensors.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(48)}))
    with pytest.raises(UnsupportedModelError, match=r"LlamaForCausalLM has no place for.*q_proj\.bias"):
        load_weights(make(tmp_path), Checkpoint.open(tmp_path))


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    change(tmp_path, lambda tensors: tensors.update({"model.norm.weight": torch.zeros(47)}))
    with pytest.raises(UnsupportedModelError, match=r"model\.norm\.weight of shape \(47,\)"):
        load_weights(make(tmp_path), Checkpoint.open(tmp_path))


def test_a_tied_head_that_is_stored_all_the_same_is_no_error(tmp_path: Path) -> None:
    save_model(tmp_path, "llama_tied")
    change(tmp_path, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}))
    load_weights(make(tmp_path), Checkpoint.open(tmp_path))
