"""What a GGUF file says about a model that transformers' reading of its header leaves out.

Left out, each of these would change answers silently: RoPE scaling, the sliding window, the size of heads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from gguf import GGUFReader

from common.errors import UnsupportedModelError
from common.model.rope import inverse_frequencies
from common.model.rope_config import RopeConfig, RopeType

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")  # as GGUF names them; SmolLM and Mistral are 'llama' too
LLAMA3_ORIGINAL_LENGTH = 8192  # tokens; of every Llama 3.1, 3.2 and 3.3
ROPE_FACTORS_TOLERANCE = 1e-3


class GGUFHeader:
    """A GGUF file's metadata by key, without the architecture's prefix."""

    def __init__(self, reader: GGUFReader) -> None:
        self._reader = reader
        self.architecture = str(self._field("general.architecture"))

    def check_supported(self) -> None:
        """Raises UnsupportedModelError that names the architecture."""
        if self.architecture not in ARCHITECTURES:
            raise UnsupportedModelError(
                f"GGUF architecture {self.architecture!r} is not supported; supported are: {', '.join(ARCHITECTURES)}"
            )

    def complete(self, config: Any) -> None:
        """Puts into a transformers config what it lacks. Raises UnsupportedModelError for a RoPE that is not built."""
        head_dim = self.get("attention.key_length")
        if head_dim is not None:
            config.head_dim = int(head_dim)
        if config.model_type == "mistral":
            config.sliding_window = self.get("attention.sliding_window")  # transformers' default is 4096
        scaling = self._rope_scaling(config)
        if scaling is not None:
            config.rope_parameters = {**config.rope_parameters, **scaling}

    def get(self, key: str) -> Any:
        """None where the file has no such key."""
        return self._field(f"{self.architecture}.{key}")

    def _field(self, key: str) -> Any:
        field = self._reader.fields.get(key)
        return None if field is None else field.contents()

    def _rope_scaling(self, config: Any) -> dict[str, Any] | None:
        factors = next((tensor for tensor in self._reader.tensors if tensor.name == "rope_freqs.weight"), None)
        if factors is not None:
            return self._llama3(config, torch.tensor(factors.data.tolist(), dtype=torch.float32))
        name = self.get("rope.scaling.type")
        if name in (None, "none"):
            return None
        scaling = {"rope_type": name, "factor": float(self.get("rope.scaling.factor") or 1.0)}
        if name == RopeType.LINEAR:
            return scaling
        if name != RopeType.YARN:
            raise UnsupportedModelError(f"RoPE scaling {name!r} of a GGUF file is not built; built are: linear, yarn")
        original = self.get("rope.scaling.original_context_length")
        if original is not None:
            scaling["original_max_position_embeddings"] = int(original)
        attention_factor = self.get("rope.scaling.attn_factor")
        if attention_factor is not None:
            scaling["attention_factor"] = float(attention_factor) * (0.1 * math.log(scaling["factor"]) + 1.0)
        for ours, theirs in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
            value = self.get(f"rope.scaling.{theirs}")
            if value is not None:
                scaling[ours] = float(value)
        return scaling

    def _llama3(self, config: Any, factors: torch.Tensor) -> dict[str, Any]:
        """The file keeps only what each frequency is divided by: finds the settings that give just these numbers."""
        scaling: dict[str, Any] = {
            "rope_type": str(RopeType.LLAMA3),
            "factor": round(float(factors.max()), 3),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": LLAMA3_ORIGINAL_LENGTH,
        }
        settings = {"max_position_embeddings": config.max_position_embeddings}
        theta = {"rope_theta": config.rope_parameters["rope_theta"]}
        plain = inverse_frequencies(RopeConfig.parse({**settings, "rope_parameters": theta}), config.head_dim)
        scaled = inverse_frequencies(
            RopeConfig.parse({**settings, "rope_parameters": {**theta, **scaling}}), config.head_dim
        )
        if not torch.allclose(plain / scaled, factors, rtol=ROPE_FACTORS_TOLERANCE):
            raise UnsupportedModelError("the RoPE factors in this GGUF file (rope_freqs) are not those of a Llama 3")
        return scaling
