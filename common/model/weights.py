"""Reads safetensors into a model, tensor by tensor: never more than one checkpoint tensor is held beside it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors import safe_open

from common.errors import UnsupportedModelError
from common.model.causal_lm import CausalLM

FINGERPRINT_SAMPLE_BYTES = 64 * 1024
# Fields of config.json that say nothing about what is computed.
_CONFIG_NOISE = ("_name_or_path", "_model_name_or_path", "transformers_version", "use_cache", "dtype", "torch_dtype")


def safetensors_files(folder: Path) -> list[Path]:
    """The checkpoint's files, in a fixed order. Raises UnsupportedModelError when there is none."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return [folder / name for name in names]
    if (folder / "model.safetensors").is_file():
        return [folder / "model.safetensors"]
    pickled = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    hint = " (pickled weights are never read: convert them to safetensors)" if pickled else ""
    raise UnsupportedModelError(f"{folder} has no model.safetensors{hint}")


def load_weights(model: CausalLM, folder: Path) -> None:
    """Fills every parameter. Raises UnsupportedModelError when tensors are missing, or of another shape."""
    places = _places(model)
    for path in safetensors_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a safetensors file is no mapping
                place = places.pop(name, None)
                if place is None:
                    continue
                tensor = file.get_tensor(name)
                if tensor.shape != place.shape:
                    raise UnsupportedModelError(
                        f"tensor {name} has shape {list(tensor.shape)}, the config wants {list(place.shape)}"
                    )
                place.copy_(tensor)
    if places:
        raise UnsupportedModelError(f"{folder} lacks tensors: {', '.join(sorted(places)[:5])}")


def fingerprint(folder: Path) -> bytes:
    """16 bytes over the config and samples of every weight's bytes: a fine-tune of the same shape has another."""
    config = json.loads((folder / "config.json").read_text())
    for name in _CONFIG_NOISE:
        config.pop(name, None)
    digest = hashlib.blake2b(json.dumps(config, sort_keys=True).encode(), digest_size=16)
    for path in safetensors_files(folder):
        for name, sample in _samples(path):
            digest.update(name.encode() + b"\0" + sample)
    return digest.digest()


def num_weight_elements(folder: Path) -> int:
    """Elements of all tensors, read from the headers alone."""
    total = 0
    for path in safetensors_files(folder):
        for entry in _header(path)[1].values():
            count = 1
            for size in entry["shape"]:
                count *= size
            total += count
    return total


def _samples(path: Path) -> Iterator[tuple[str, bytes]]:
    start, header = _header(path)
    with open(path, "rb") as file:
        for name, entry in sorted(header.items()):
            begin, end = entry["data_offsets"]
            file.seek(start + begin + max(0, (end - begin - FINGERPRINT_SAMPLE_BYTES) // 2))
            yield name, file.read(min(FINGERPRINT_SAMPLE_BYTES, end - begin))


def _header(path: Path) -> tuple[int, dict[str, dict[str, list[int]]]]:
    """Where the data begins, and each tensor's shape and offsets."""
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    return 8 + length, header


def _places(model: CausalLM) -> dict[str, torch.Tensor]:
    """Checkpoint name → the part of a parameter that it fills."""
    config = model.config
    q_size = config.num_q_heads * config.head_dim
    kv_size = config.num_kv_heads * config.head_dim
    places: dict[str, torch.Tensor] = {
        "model.embed_tokens.weight": model.embedding,
        "model.norm.weight": model.norm,
    }
    if model.head is not None:
        places["lm_head.weight"] = model.head
    for index in range(config.num_layers):
        layer = model.layer(index)
        prefix = f"model.layers.{index}."
        parts = {
            "self_attn.q_proj": (layer.qkv, layer.qkv_bias, 0, q_size),
            "self_attn.k_proj": (layer.qkv, layer.qkv_bias, q_size, kv_size),
            "self_attn.v_proj": (layer.qkv, layer.qkv_bias, q_size + kv_size, kv_size),
            "self_attn.o_proj": (layer.output, layer.output_bias, 0, config.hidden_size),
            "mlp.gate_proj": (layer.gate_up, layer.gate_up_bias, 0, config.intermediate_size),
            "mlp.up_proj": (layer.gate_up, layer.gate_up_bias, config.intermediate_size, config.intermediate_size),
            "mlp.down_proj": (layer.down, layer.down_bias, 0, config.hidden_size),
        }
        for name, (weight, bias, start, size) in parts.items():
            places[f"{prefix}{name}.weight"] = weight[start : start + size]
            if bias is not None:
                places[f"{prefix}{name}.bias"] = bias[start : start + size]
        places[f"{prefix}input_layernorm.weight"] = layer.input_norm
        places[f"{prefix}post_attention_layernorm.weight"] = layer.post_norm
        if layer.q_norm is not None and layer.k_norm is not None:
            places[f"{prefix}self_attn.q_norm.weight"] = layer.q_norm
            places[f"{prefix}self_attn.k_norm.weight"] = layer.k_norm
    return places
