"""How many bytes a model's weights and KV take in bf16, from its config and the header of its weights."""

from __future__ import annotations

import json
import math
from pathlib import Path

from benchmarks.speed.results import ModelSize

BYTES = 2  # of a bf16 number


def model_size(folder: Path) -> ModelSize:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    with open(folder / "model.safetensors", "rb") as weights:
        header = json.loads(weights.read(int.from_bytes(weights.read(8), "little")))
    shapes = {name: tuple(one["shape"]) for name, one in header.items() if name != "__metadata__"}
    num_embedded = math.prod(shapes["model.embed_tokens.weight"])
    num_head = math.prod(shapes["lm_head.weight"]) if "lm_head.weight" in shapes else num_embedded
    num_body = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("model.layers."))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return ModelSize(
        weight_bytes=BYTES * (num_body + num_head),
        kv_bytes_per_token=BYTES * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head_dim,
        num_linear_parameters=num_body,
    )
