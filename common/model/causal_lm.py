"""The Llama family: embedding, layers of attention and gated feed-forward, a head over the vocabulary.

One code for all of it; what families differ in (biases, q/k norm, windows, tied head) is in ArchitectureConfig.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional as F

from common.attention.backend import AttentionBackend
from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import LayerKVCache
from common.kernels.rms_norm import rms_norm
from common.kernels.rotary import apply_rotary
from common.kernels.silu_and_mul import silu_and_mul
from common.model.architecture import ArchitectureConfig
from common.model.rotary_embedding import RotaryEmbedding, Rotation


class LayerCaches(Protocol):
    """Where each layer's keys and values are."""

    def layer(self, layer: int) -> LayerKVCache: ...


class CausalLM(nn.Module):
    """Parameters are made uninitialised, in `dtype`; `load_weights` fills them."""

    def __init__(
        self, config: ArchitectureConfig, hf_config: Any, backend: AttentionBackend, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.config = config
        self.backend = backend
        self.embedding = _parameter(config.vocab_size, config.hidden_size, dtype=dtype)
        self.layers = nn.ModuleList(Layer(config, index, dtype) for index in range(config.num_layers))
        self.norm = _parameter(config.hidden_size, dtype=dtype)
        self.head = (
            None if config.tie_word_embeddings else _parameter(config.vocab_size, config.hidden_size, dtype=dtype)
        )
        self.rotary = RotaryEmbedding(hf_config, config.head_dim, config.rope_type)
        self._windows = tuple(dict.fromkeys(config.windows))

    def forward(self, batch: ForwardBatch, kv_cache: LayerCaches) -> torch.Tensor:
        """Hidden states after the last norm, [num_tokens, hidden_size]."""
        hidden = F.embedding(batch.token_ids, self.embedding)
        rotation = self.rotary(batch.positions, hidden.dtype)
        plan = self.backend.plan(batch, kv_cache.layer(0), self._windows)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, rotation, plan, kv_cache.layer(index), self.backend)
        return rms_norm(hidden, self.norm, self.config.rms_norm_epsilon)

    def layer(self, index: int) -> Layer:
        layer = self.layers[index]
        assert isinstance(layer, Layer)
        return layer

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[num_rows, hidden_size] → [num_rows, vocab_size] float32."""
        return F.linear(hidden, self.embedding if self.head is None else self.head).float()


class Layer(nn.Module):
    """One transformer block. Queries, keys and values are one matrix, gate and up another."""

    def __init__(self, config: ArchitectureConfig, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.epsilon = config.rms_norm_epsilon
        self.num_q_heads, self.num_kv_heads = config.num_q_heads, config.num_kv_heads
        self.head_dim = config.head_dim
        self.window = config.windows[index]
        num_heads = config.num_q_heads + 2 * config.num_kv_heads
        q_size, qkv_size = config.num_q_heads * config.head_dim, num_heads * config.head_dim
        hidden_size, intermediate_size = config.hidden_size, config.intermediate_size
        self.input_norm = _parameter(hidden_size, dtype=dtype)
        self.qkv = _parameter(qkv_size, hidden_size, dtype=dtype)
        self.qkv_bias = _parameter(qkv_size, dtype=dtype) if config.qkv_bias else None
        self.q_norm = _parameter(config.head_dim, dtype=dtype) if config.qk_norm else None
        self.k_norm = _parameter(config.head_dim, dtype=dtype) if config.qk_norm else None
        self.output = _parameter(hidden_size, q_size, dtype=dtype)
        self.output_bias = _parameter(hidden_size, dtype=dtype) if config.output_bias else None
        self.post_norm = _parameter(hidden_size, dtype=dtype)
        self.gate_up = _parameter(2 * intermediate_size, hidden_size, dtype=dtype)
        self.gate_up_bias = _parameter(2 * intermediate_size, dtype=dtype) if config.mlp_bias else None
        self.down = _parameter(hidden_size, intermediate_size, dtype=dtype)
        self.down_bias = _parameter(hidden_size, dtype=dtype) if config.mlp_bias else None

    def forward(
        self,
        hidden: torch.Tensor,  # [num_tokens, hidden_size]
        rotation: Rotation,
        plan: Any,
        cache: LayerKVCache,
        backend: AttentionBackend,
    ) -> torch.Tensor:
        """[num_tokens, hidden_size]."""
        attended = self._attend(rms_norm(hidden, self.input_norm, self.epsilon), rotation, plan, cache, backend)
        hidden = hidden + F.linear(attended, self.output, self.output_bias)
        gated = silu_and_mul(F.linear(rms_norm(hidden, self.post_norm, self.epsilon), self.gate_up, self.gate_up_bias))
        return hidden + F.linear(gated, self.down, self.down_bias)

    def _attend(
        self, hidden: torch.Tensor, rotation: Rotation, plan: Any, cache: LayerKVCache, backend: AttentionBackend
    ) -> torch.Tensor:
        """[num_tokens, num_q_heads * head_dim]."""
        qkv = F.linear(hidden, self.qkv, self.qkv_bias).view(hidden.shape[0], -1, self.head_dim)
        num_rotated = self.num_q_heads + self.num_kv_heads
        if self.q_norm is None or self.k_norm is None:
            rotated = apply_rotary(qkv[:, :num_rotated], *rotation)
            query, key = rotated[:, : self.num_q_heads], rotated[:, self.num_q_heads :]
        else:
            query = apply_rotary(rms_norm(qkv[:, : self.num_q_heads], self.q_norm, self.epsilon), *rotation)
            key = apply_rotary(rms_norm(qkv[:, self.num_q_heads : num_rotated], self.k_norm, self.epsilon), *rotation)
        value = qkv[:, num_rotated:]
        return backend.attend(plan, query, key, value, cache, scale=self.head_dim**-0.5, window=self.window)


def _parameter(*shape: int, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=dtype), requires_grad=False)
