"""What a model's config.json says, as far as computing it needs: one dataclass for the whole Llama family."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from common.errors import UnsupportedModelError
from common.kv.spec import KVCacheGroup, KVCacheSpec

logger = logging.getLogger(__name__)

# Architecture → which of the family's features its code has, whatever its config may say.
_QKV_BIAS = {"Qwen2ForCausalLM"}
_QK_NORM = {"Qwen3ForCausalLM"}
SUPPORTED_ARCHITECTURES = (
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)
SUPPORTED_ROPE_TYPES = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureConfig:
    """Sizes are elements, lengths tokens. `windows` has a sliding window, or None, for each layer."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_epsilon: float
    max_position_embeddings: int
    rope_type: str
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    eos_token_ids: frozenset[int]
    checkpoint_dtype: str

    def kv_cache_spec(self, *, block_size: int, dtype: str) -> KVCacheSpec:
        """One group of full attention; a window is served as full."""
        group = KVCacheGroup(
            group_id=0,
            layers=tuple(range(self.num_layers)),
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            block_size=block_size,
            dtype=dtype,
        )
        return KVCacheSpec(groups=(group,))


def read_hf_config(folder: Path) -> Any:
    """The transformers config, which knows every older way to write one. Raises UnsupportedModelError."""
    raw = json.loads((folder / "config.json").read_text())
    architecture = (raw.get("architectures") or ["none"])[0]
    if architecture not in SUPPORTED_ARCHITECTURES:
        raise UnsupportedModelError(
            f"architecture {architecture} is not supported (supported: {', '.join(SUPPORTED_ARCHITECTURES)})"
        )
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method", "unknown")
        raise UnsupportedModelError(f"{architecture}: quantised checkpoints ({method}) are not supported")
    return AutoConfig.from_pretrained(folder)


def read_architecture(folder: Path, hf_config: Any) -> ArchitectureConfig:
    """Raises UnsupportedModelError with the feature that is not built."""
    architecture = hf_config.architectures[0]
    rope_type = hf_config.rope_parameters.get("rope_type", "default")
    if rope_type not in SUPPORTED_ROPE_TYPES:
        raise UnsupportedModelError(
            f"{architecture}: rope type {rope_type!r} is not supported (supported: {', '.join(SUPPORTED_ROPE_TYPES)})"
        )
    if hf_config.hidden_act != "silu":
        raise UnsupportedModelError(f"{architecture}: activation {hf_config.hidden_act!r} is not supported (only silu)")
    attention_bias = bool(getattr(hf_config, "attention_bias", False))
    return ArchitectureConfig(
        architecture=architecture,
        vocab_size=hf_config.vocab_size,
        hidden_size=hf_config.hidden_size,
        intermediate_size=hf_config.intermediate_size,
        num_layers=hf_config.num_hidden_layers,
        num_q_heads=hf_config.num_attention_heads,
        num_kv_heads=hf_config.num_key_value_heads or hf_config.num_attention_heads,
        head_dim=getattr(hf_config, "head_dim", None) or hf_config.hidden_size // hf_config.num_attention_heads,
        rms_norm_epsilon=hf_config.rms_norm_eps,
        max_position_embeddings=hf_config.max_position_embeddings,
        rope_type=rope_type,
        tie_word_embeddings=bool(hf_config.tie_word_embeddings),
        qkv_bias=attention_bias or architecture in _QKV_BIAS,
        output_bias=attention_bias,
        mlp_bias=bool(getattr(hf_config, "mlp_bias", False)),
        qk_norm=architecture in _QK_NORM,
        windows=_windows(hf_config),
        eos_token_ids=_eos_token_ids(folder, hf_config),
        checkpoint_dtype=str(hf_config.dtype).removeprefix("torch."),
    )


def _windows(hf_config: Any) -> tuple[int | None, ...]:
    num_layers: int = hf_config.num_hidden_layers
    window: int | None = getattr(hf_config, "sliding_window", None)
    if window is None or hf_config.architectures[0] == "LlamaForCausalLM":
        return (None,) * num_layers
    layer_types = getattr(hf_config, "layer_types", None)
    if layer_types is None:
        return (window,) * num_layers
    return tuple(window if kind == "sliding_attention" else None for kind in layer_types)


def _eos_token_ids(folder: Path, hf_config: Any) -> frozenset[int]:
    """generation_config.json says it best: chat models end with more tokens than their config names."""
    path = folder / "generation_config.json"
    ids = json.loads(path.read_text()).get("eos_token_id") if path.is_file() else None
    if ids is None:
        ids = hf_config.eos_token_id
    if ids is None:
        return frozenset()
    return frozenset([ids] if isinstance(ids, int) else ids)
