"""The shape of a model, parsed from the `config.json` of its checkpoint. What can't be served is refused by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UnsupportedModelError
from common.kv.spec import KVCacheGroup, KVCacheSpec
from common.model.rope_config import RopeConfig

SUPPORTED_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureConfig:
    """Everything about a model that its forward pass depends on, weights and dtype aside."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int  # tokens
    rms_norm_eps: float
    rope: RopeConfig
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]  # of each layer, tokens; None: full attention

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> ArchitectureConfig:
        """Raises UnsupportedModelError that names the architecture or the feature that is not built."""
        architecture = _check_supported(config)
        qwen2 = architecture == "Qwen2ForCausalLM"
        attention_bias = architecture != "MistralForCausalLM" and bool(config.get("attention_bias", False))
        num_q_heads = config["num_attention_heads"]
        default_head_dim = 128 if architecture == "Qwen3ForCausalLM" else config["hidden_size"] // num_q_heads
        num_kv_heads = config.get("num_key_value_heads") or num_q_heads
        if num_q_heads % num_kv_heads:
            raise UnsupportedModelError(f"{num_q_heads} attention heads can't share {num_kv_heads} key-value heads")
        return cls(
            architecture=architecture,
            vocab_size=config["vocab_size"],
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_layers=config["num_hidden_layers"],
            num_q_heads=num_q_heads,
            num_kv_heads=num_kv_heads,
            head_dim=config.get("head_dim") or default_head_dim,
            max_position_embeddings=config["max_position_embeddings"],
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            rope=RopeConfig.parse(config),
            tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=qwen2 or attention_bias,
            output_bias=attention_bias and not qwen2,
            mlp_bias=architecture == "LlamaForCausalLM" and bool(config.get("mlp_bias", False)),
            qk_norm=architecture == "Qwen3ForCausalLM",
            windows=_windows(architecture, config),
        )

    @classmethod
    def load(cls, folder: Path) -> ArchitectureConfig:
        """Raises UnsupportedModelError, also where a field is missing that every such model has."""
        path = folder / "config.json"
        try:
            return cls.parse(read_json(path))
        except KeyError as error:
            raise UnsupportedModelError(f"{path} has no {error.args[0]}") from None

    def kv_cache_spec(self, *, block_size: int, dtype: str) -> KVCacheSpec:
        """All layers form one full group: a sliding window is served over a cache that keeps everything."""
        group = KVCacheGroup(
            group_id=0,
            layers=tuple(range(self.num_layers)),
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            block_size=block_size,
            dtype=dtype,
        )
        return KVCacheSpec(groups=(group,))

    def canonical(self) -> bytes:
        """The same bytes for the same architecture, whatever else its config.json says."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True).encode()


def read_json(path: Path) -> dict[str, Any]:
    """Raises UnsupportedModelError when the file is no JSON object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UnsupportedModelError(f"{path} does not exist: a model folder needs it") from None
    except ValueError as error:
        raise UnsupportedModelError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UnsupportedModelError(f"{path} must hold a JSON object")
    return content


def read_eos_token_ids(folder: Path) -> frozenset[int]:
    """Of generation_config.json, else of config.json; empty where neither names one."""
    for name in ("generation_config.json", "config.json"):
        if (folder / name).exists():
            eos = read_json(folder / name).get("eos_token_id")
            if eos is not None:
                return frozenset(eos if isinstance(eos, list) else [eos])
    return frozenset()


def _check_supported(config: Mapping[str, Any]) -> str:
    names = config.get("architectures") or []
    if not names:
        raise UnsupportedModelError(
            f"config.json names no architecture (its model_type is {config.get('model_type')!r}): `architectures` must "
            f"list one of {', '.join(SUPPORTED_ARCHITECTURES)}"
        )
    supported = [name for name in names if name in SUPPORTED_ARCHITECTURES]
    if not supported:
        raise UnsupportedModelError(
            f"architecture {', '.join(names)} is not supported; supported are: {', '.join(SUPPORTED_ARCHITECTURES)}"
        )
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method", "unknown method") if isinstance(quantization, Mapping) else "?"
        raise UnsupportedModelError(f"quantised checkpoints ({method}) are not supported; use the original weights")
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnsupportedModelError(f"activation {activation!r} is not supported; supported is: silu")
    return str(supported[0])


def _windows(architecture: str, config: Mapping[str, Any]) -> tuple[int | None, ...]:
    num_layers: int = config["num_hidden_layers"]
    window: int | None = config.get("sliding_window")
    if architecture == "LlamaForCausalLM" or not window:
        return (None,) * num_layers
    if architecture == "MistralForCausalLM":
        return (window,) * num_layers
    if not config.get("use_sliding_window", False):
        return (None,) * num_layers
    layer_types = config.get("layer_types")
    if layer_types is None:
        first = config.get("max_window_layers", 28)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    unknown = set(layer_types) - {"full_attention", "sliding_attention"}
    if unknown:
        raise UnsupportedModelError(f"layers of type {', '.join(sorted(unknown))} are not supported")
    return tuple(window if layer_type == "sliding_attention" else None for layer_type in layer_types)
