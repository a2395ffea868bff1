"""Small random-weight models of every family, as transformers builds and saves them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
WEIGHT_SCALE = 6.0  # as initialised, all logits would be nearly equal
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}


def _llama(**changes: Any) -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **changes}))


def _mistral(**changes: Any) -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**{**SIZES, **changes}))


def _qwen2(**changes: Any) -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**{**SIZES, **changes}))


def _qwen3(**changes: Any) -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changes}))


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: _llama(),
    "llama_tied": lambda: _llama(tie_word_embeddings=True),
    "llama_rope_llama3": lambda: _llama(rope_parameters=LLAMA3_ROPE),
    "llama_rope_linear": lambda: _llama(rope_parameters=LINEAR_ROPE),
    "llama_biases": lambda: _llama(attention_bias=True, mlp_bias=True, num_key_value_heads=6),
    "llama_wide_heads": lambda: _llama(head_dim=16, num_key_value_heads=1),
    "mistral_window": lambda: _mistral(sliding_window=20),
    "mistral_no_window": lambda: _mistral(sliding_window=None, head_dim=16),
    "qwen2": lambda: _qwen2(tie_word_embeddings=True),
    "qwen2_mixed_windows": lambda: _qwen2(use_sliding_window=True, sliding_window=24, max_window_layers=1),
    "qwen2_rope_yarn": lambda: _qwen2(rope_parameters=YARN_ROPE),
    "qwen3": lambda: _qwen3(head_dim=16),
    "qwen3_tied_bias": lambda: _qwen3(head_dim=8, tie_word_embeddings=True, attention_bias=True),
}


def make_model(build: Callable[[], PreTrainedModel], seed: int = 5) -> PreTrainedModel:
    """Float32, in evaluation mode; the same weights for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 2:
                    parameter.mul_(WEIGHT_SCALE)
                else:  # biases start at 0 and norms at 1, which would hide them
                    parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def save_model(folder: Path, family: str, seed: int = 5) -> PreTrainedModel:
    """Writes a model of FAMILIES into the folder and returns it."""
    model = make_model(FAMILIES[family], seed)
    model.save_pretrained(folder)
    return model
