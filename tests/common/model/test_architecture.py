"""What config.json of each family means, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.errors import UnsupportedModelError
from common.model.architecture import ArchitectureConfig, read_eos_token_ids
from tests.support.models import FAMILIES, SIZES

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}


def parse(**changes: Any) -> ArchitectureConfig:
    return ArchitectureConfig.parse({**LLAMA, **changes})


@pytest.mark.parametrize("family", FAMILIES)
def test_agrees_with_transformers(family: str) -> None:
    config = FAMILIES[family]().config
    raw = json.loads(config.to_json_string(use_diff=False))
    raw["architectures"] = [f"{type(config).__name__.removesuffix('Config')}ForCausalLM"]
    architecture = ArchitectureConfig.parse(raw)
    assert architecture.num_kv_heads == config.num_key_value_heads
    assert architecture.head_dim == (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    assert architecture.tie_word_embeddings == config.tie_word_embeddings
    assert architecture.rope.rope_type == config.rope_parameters["rope_type"]
    assert architecture.num_layers == SIZES["num_hidden_layers"]


@pytest.mark.parametrize("name", ["GPT2LMHeadModel", "MixtralForCausalLM", "DeepseekV3ForCausalLM"])
def test_another_architecture_is_refused_with_its_name_and_the_list(name: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{name} is not supported; supported are: LlamaForCausalLM, "):
        parse(architectures=[name])


def test_a_config_without_architecture_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"names no architecture .*'bert'"):
        parse(architectures=None, model_type="bert")


def test_a_quantised_checkpoint_is_refused_with_its_method() -> None:
    with pytest.raises(UnsupportedModelError, match=r"quantised checkpoints \(awq\)"):
        parse(quantization_config={"quant_method": "awq", "bits": 4})


def test_another_activation_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="activation 'gelu'"):
        parse(hidden_act="gelu")


def test_heads_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="8 attention heads"):
        parse(num_key_value_heads=3)


@pytest.mark.parametrize(
    ("architecture", "changes", "windows"),
    [
        ("LlamaForCausalLM", {"sliding_window": 32}, (None,) * 4),
        ("MistralForCausalLM", {"sliding_window": 32}, (32,) * 4),
        ("MistralForCausalLM", {"sliding_window": None}, (None,) * 4),
        ("Qwen2ForCausalLM", {"sliding_window": 32, "use_sliding_window": False}, (None,) * 4),
        (
            "Qwen2ForCausalLM",
            {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 32),
        ),
        (
            "Qwen3ForCausalLM",
            {
                "sliding_window": 32,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (32, None, 32, None),
        ),
    ],
)
def test_windows(architecture: str, changes: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert parse(architectures=[architecture], **changes).windows == windows


def test_a_layer_type_that_is_not_built_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="linear_attention"):
        parse(
            architectures=["Qwen3ForCausalLM"],
            sliding_window=32,
            use_sliding_window=True,
            layer_types=["linear_attention", "full_attention"] * 2,
        )


def test_biases_of_the_families() -> None:
    def biases(architecture: str, **changes: Any) -> tuple[bool, bool, bool]:
        parsed = parse(architectures=[architecture], **changes)
        return parsed.qkv_bias, parsed.output_bias, parsed.mlp_bias

    assert biases("LlamaForCausalLM") == (False, False, False)
    assert biases("LlamaForCausalLM", attention_bias=True, mlp_bias=True) == (True, True, True)
    assert biases("MistralForCausalLM") == (False, False, False)
    assert biases("Qwen2ForCausalLM") == (True, False, False)
    assert biases("Qwen3ForCausalLM", attention_bias=True) == (True, True, False)


def test_the_kv_cache_is_one_full_group() -> None:
    (group,) = parse().kv_cache_spec(block_size=16, dtype="bfloat16").groups
    assert group.block_shape == (4, 2, 2, 16, 8)


@pytest.mark.parametrize(
    ("generation", "config", "expected"),
    [
        ({"eos_token_id": [5, 7]}, {"eos_token_id": 2}, {5, 7}),
        ({"eos_token_id": 5}, {"eos_token_id": 2}, {5}),
        ({}, {"eos_token_id": 2}, {2}),
        (None, {"eos_token_id": [2, 3]}, {2, 3}),
        (None, {}, set()),
    ],
)
def test_eos_token_ids(
    tmp_path: Path, generation: dict[str, Any] | None, config: dict[str, Any], expected: set[int]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert read_eos_token_ids(tmp_path) == expected


@pytest.mark.parametrize(("content", "message"), [(None, "does not exist"), ("{", "not valid JSON"), ("[]", "object")])
def test_a_bad_config_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UnsupportedModelError, match=rf"config\.json .*{message}"):
        ArchitectureConfig.load(tmp_path)
