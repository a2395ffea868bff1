"""What transformers leaves out of a GGUF header, from headers written for the purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter
from transformers import LlamaConfig, MistralConfig

from common.errors import UnsupportedModelError
from common.model.gguf_config import GGUFHeader
from common.model.rope import inverse_frequencies
from common.model.rope_config import RopeConfig

HEAD_DIM = 64
LLAMA3: dict[str, Any] = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def make_header(
    folder: Path,
    architecture: str = "llama",
    values: dict[str, object] | None = None,
    rope_freqs: np.ndarray[Any, np.dtype[np.float32]] | None = None,
) -> GGUFHeader:
    writer = GGUFWriter(folder / "model.gguf", architecture)
    for key, value in (values or {}).items():
        add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32}[type(value)]
        add(f"{architecture}.{key}", value)
    if rope_freqs is not None:
        writer.add_tensor("rope_freqs.weight", rope_freqs)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GGUFHeader(GGUFReader(folder / "model.gguf"))


def make_config() -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        max_position_embeddings=131072,
        rope_parameters={"rope_theta": 500000.0, "rope_type": "default"},
    )


def parse(config: LlamaConfig) -> RopeConfig:
    return RopeConfig.parse(
        {"max_position_embeddings": config.max_position_embeddings, "rope_parameters": config.rope_parameters}
    )


def llama3_factors() -> np.ndarray[Any, np.dtype[np.float32]]:
    """As llama.cpp's converter writes them."""
    plain, scaled = make_config(), make_config()
    scaled.rope_parameters = {"rope_theta": 500000.0, **LLAMA3}
    factors = inverse_frequencies(parse(plain), HEAD_DIM) / inverse_frequencies(parse(scaled), HEAD_DIM)
    array: np.ndarray[Any, np.dtype[np.float32]] = factors.numpy().astype(np.float32)
    return array


def test_nothing_to_add_changes_nothing(tmp_path: Path) -> None:
    config = make_config()
    before = config.to_dict()
    make_header(tmp_path).complete(config)
    assert config.to_dict() == before


def test_llama3_scaling_is_found_from_its_factors(tmp_path: Path) -> None:
    config = make_config()
    make_header(tmp_path, rope_freqs=llama3_factors()).complete(config)
    assert config.rope_parameters == {"rope_theta": 500000.0, **LLAMA3}


def test_other_factors_are_refused(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, HEAD_DIM // 2, dtype=np.float32)
    with pytest.raises(UnsupportedModelError, match="rope_freqs"):
        make_header(tmp_path, rope_freqs=factors).complete(make_config())


def test_linear_and_yarn_scaling(tmp_path: Path) -> None:
    config = make_config()
    make_header(tmp_path, values={"rope.scaling.type": "linear", "rope.scaling.factor": 2.0}).complete(config)
    assert config.rope_parameters == {"rope_theta": 500000.0, "rope_type": "linear", "factor": 2.0}
    config = make_config()
    values: dict[str, object] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 32768,
    }
    make_header(tmp_path, values=values).complete(config)
    assert parse(config).original_max_position_embeddings == 32768
    assert parse(config).factor == 4.0


def test_another_scaling_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="'longrope'"):
        make_header(tmp_path, values={"rope.scaling.type": "longrope"}).complete(make_config())


@pytest.mark.parametrize(("values", "window"), [({}, None), ({"attention.sliding_window": 512}, 512)])
def test_the_sliding_window_of_a_mistral(tmp_path: Path, values: dict[str, object], window: int | None) -> None:
    config = MistralConfig(rope_parameters={"rope_theta": 10000.0, "rope_type": "default"})
    make_header(tmp_path, values=values).complete(config)
    assert config.sliding_window == window


def test_the_size_of_heads(tmp_path: Path) -> None:
    config = make_config()
    make_header(tmp_path, values={"attention.key_length": 96}).complete(config)
    assert config.head_dim == 96


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match=r"'gemma2' is not supported; supported are: llama, mistral"):
        make_header(tmp_path, "gemma2").check_supported()
    make_header(tmp_path, "qwen3").check_supported()
