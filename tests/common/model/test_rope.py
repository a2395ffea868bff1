"""Frequencies and tables against transformers' own, for each scaling variant and both layouts of the config."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from common.errors import UnsupportedModelError
from common.model.rope import RotaryTable, inverse_frequencies
from common.model.rope_config import RopeConfig, RopeType

HEAD_DIM, MAX_POSITIONS = 64, 512
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 128,
    },
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128},
    "yarn_tuned": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16.0,
        "beta_slow": 2.0,
        "attention_factor": 1.3,
        "truncate": False,
    },
    "yarn_mscale": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "mscale": 0.8,
        "mscale_all_dim": 0.5,
    },
}


def transformers_rope(rope: dict[str, Any]) -> LlamaRotaryEmbedding:
    return LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=4 * HEAD_DIM,
            num_attention_heads=4,
            max_position_embeddings=MAX_POSITIONS,
            rope_parameters={"rope_theta": 50000.0, **rope},
        )
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_frequencies_and_tables_equal_transformers(name: str) -> None:
    theirs = transformers_rope(VARIANTS[name])
    rope = RopeConfig.parse(
        {"max_position_embeddings": MAX_POSITIONS, "rope_parameters": {"rope_theta": 50000.0, **VARIANTS[name]}}
    )
    assert torch.equal(inverse_frequencies(rope, HEAD_DIM), theirs.inv_freq)
    positions = torch.arange(MAX_POSITIONS)
    cos, sin = theirs(torch.empty(0), positions[None])
    table = RotaryTable(
        rope, head_dim=HEAD_DIM, max_positions=MAX_POSITIONS, dtype=torch.float32, device=torch.device("cpu")
    )
    our_cos, our_signed_sin = table(positions)
    torch.testing.assert_close(our_cos[:, 0], cos[0], atol=1e-6, rtol=0)
    half = HEAD_DIM // 2
    torch.testing.assert_close(our_signed_sin[:, 0, half:], sin[0, :, half:], atol=1e-6, rtol=0)
    torch.testing.assert_close(our_signed_sin[:, 0, :half], -sin[0, :, :half], atol=1e-6, rtol=0)


def test_the_older_layout_says_the_same() -> None:
    scaling = {"type": "linear", "factor": 4.0}
    old = RopeConfig.parse({"max_position_embeddings": 64, "rope_theta": 1e6, "rope_scaling": scaling})
    new = RopeConfig.parse(
        {"max_position_embeddings": 64, "rope_parameters": {"rope_theta": 1e6, "rope_type": "linear", "factor": 4.0}}
    )
    assert old == new
    assert (old.rope_type, old.theta, old.factor) == (RopeType.LINEAR, 1e6, 4.0)


def test_no_settings_are_the_default() -> None:
    rope = RopeConfig.parse({"max_position_embeddings": 64, "rope_scaling": None})
    assert (rope.rope_type, rope.theta) == (RopeType.DEFAULT, 10000.0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "'longrope' is not built; built are: default"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "differ between layers"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    ],
)
def test_what_is_not_built_is_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModelError, match=message):
        RopeConfig.parse({"max_position_embeddings": 64, **config})
