"""The Llama family as one model: Llama, Mistral, Qwen2 and Qwen3 differ in biases, q/k norms and windows only.

Knows nothing of requests, blocks or sampling: a forward pass takes a `ForwardBatch` and the layers' KV caches.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.functional import embedding, linear

from common.attention.backend import AttentionBackend
from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import KVCacheLayers, LayerKVCache
from common.kernels.rms_norm import rms_norm
from common.kernels.rotary import apply_rotary
from common.kernels.silu_and_mul import silu_and_mul
from common.model.architecture import ArchitectureConfig
from common.model.linear import Linear, empty_parameter
from common.model.rope import RotaryTable

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosine and signed sine, each [num_tokens, 1, head_dim]


class FusedDecoder(Protocol):
    """Computes the steps that it takes faster than layer by layer. `native_decoder.py` has one for CPUs."""

    def takes(self, num_rows: int) -> bool: ...

    def forward(self, batch: ForwardBatch, kv_cache: KVCacheLayers) -> torch.Tensor: ...

    def logits(self, hidden: torch.Tensor) -> torch.Tensor: ...


class CausalLM(nn.Module):
    """Parameters need no gradient; inference mode is the caller's. One thread at a time.

    `decoder`, if any, is given after the weights are loaded.
    """

    def __init__(
        self,
        architecture: ArchitectureConfig,
        attention: AttentionBackend,
        *,
        max_model_len: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        vocab_size, hidden_size = architecture.vocab_size, architecture.hidden_size
        self.architecture = architecture
        self.windows = tuple(dict.fromkeys(architecture.windows))
        self.attention = attention
        self.decoder: FusedDecoder | None = None
        self.embedding = empty_parameter(vocab_size, hidden_size, dtype=dtype, device=device)
        self.layers = nn.ModuleList(
            DecoderLayer(architecture, attention, layer, dtype=dtype, device=device)
            for layer in range(architecture.num_layers)
        )
        self.norm = empty_parameter(hidden_size, dtype=dtype, device=device)
        self.lm_head = (
            self.embedding
            if architecture.tie_word_embeddings
            else empty_parameter(vocab_size, hidden_size, dtype=dtype, device=device)
        )
        self.rotary = RotaryTable(
            architecture.rope, head_dim=architecture.head_dim, max_positions=max_model_len, dtype=dtype, device=device
        )

    def forward(self, batch: ForwardBatch, kv_cache: KVCacheLayers) -> torch.Tensor:
        """Final hidden states, normalised: [num_tokens, hidden_size]. Writes the batch's keys and values."""
        if self.decoder is not None and self.decoder.takes(batch.num_tokens):
            return self.decoder.forward(batch, kv_cache)
        # What all layers add to stays float32: in bfloat16, sums of this many terms lose what decides close calls.
        hidden = embedding(batch.token_ids, self.embedding).float()
        rotary = self.rotary(batch.positions)
        plan = self.attention.plan(batch, LayerKVCache(*kv_cache.layer(0)), self.windows)
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, rotary, plan, LayerKVCache(*kv_cache.layer(index)))
        return rms_norm(hidden, self.norm, self.architecture.rms_norm_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[num_rows, hidden_size] -> [num_rows, vocab_size] float32."""
        if self.decoder is not None and self.decoder.takes(hidden.shape[0]):
            return self.decoder.logits(hidden)
        return linear(hidden, self.lm_head).float()


class DecoderLayer(nn.Module):
    def __init__(
        self,
        architecture: ArchitectureConfig,
        attention: AttentionBackend,
        layer: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.epsilon = architecture.rms_norm_eps
        self.attention_norm = empty_parameter(architecture.hidden_size, dtype=dtype, device=device)
        self.attention = SelfAttention(architecture, attention, layer, dtype=dtype, device=device)
        self.mlp_norm = empty_parameter(architecture.hidden_size, dtype=dtype, device=device)
        self.mlp = Mlp(architecture, dtype=dtype, device=device)

    def forward(self, hidden: torch.Tensor, rotary: Rotary, plan: Any, cache: LayerKVCache) -> torch.Tensor:
        """hidden: [num_tokens, hidden_size] float32, updated in place."""
        hidden += self.attention(rms_norm(hidden, self.attention_norm, self.epsilon), rotary, plan, cache)
        hidden += self.mlp(rms_norm(hidden, self.mlp_norm, self.epsilon))
        return hidden


class SelfAttention(nn.Module):
    """Queries, keys and values come from one matrix, rows in that order."""

    def __init__(
        self,
        architecture: ArchitectureConfig,
        backend: AttentionBackend,
        layer: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        super().__init__()
        self.num_q_heads, self.num_kv_heads = architecture.num_q_heads, architecture.num_kv_heads
        self.head_dim = architecture.head_dim
        self.scale = architecture.head_dim**-0.5
        self.window = architecture.windows[layer]
        self.epsilon = architecture.rms_norm_eps
        self.backend = backend
        num_rotated = self.num_q_heads + self.num_kv_heads
        self.qkv = Linear(
            architecture.hidden_size,
            (num_rotated + self.num_kv_heads) * self.head_dim,
            bias=architecture.qkv_bias,
            dtype=dtype,
            device=device,
        )
        # one row per query and key head, so that one call normalises them all
        self.qk_norm = (
            empty_parameter(num_rotated, self.head_dim, dtype=dtype, device=device) if (architecture.qk_norm) else None
        )
        self.output = Linear(
            self.num_q_heads * self.head_dim,
            architecture.hidden_size,
            bias=architecture.output_bias,
            dtype=dtype,
            device=device,
        )

    def forward(self, hidden: torch.Tensor, rotary: Rotary, plan: Any, cache: LayerKVCache) -> torch.Tensor:
        """[num_tokens, hidden_size] -> [num_tokens, hidden_size]."""
        heads = self.qkv(hidden).view(hidden.shape[0], -1, self.head_dim)
        num_rotated = self.num_q_heads + self.num_kv_heads
        rotated, value = heads[:, :num_rotated], heads[:, num_rotated:]
        if self.qk_norm is not None:
            rotated = rms_norm(rotated, self.qk_norm, self.epsilon)
        rotated = apply_rotary(rotated, *rotary)
        query, key = rotated[:, : self.num_q_heads], rotated[:, self.num_q_heads :]
        attended = self.backend.attend(plan, query, key, value, cache, scale=self.scale, window=self.window)
        return self.output(attended)  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """SwiGLU; gate and up come from one matrix, rows in that order."""

    def __init__(self, architecture: ArchitectureConfig, *, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        hidden_size, intermediate_size = architecture.hidden_size, architecture.intermediate_size
        bias = architecture.mlp_bias
        self.gate_up = Linear(hidden_size, 2 * intermediate_size, bias=bias, dtype=dtype, device=device)
        self.down = Linear(intermediate_size, hidden_size, bias=bias, dtype=dtype, device=device)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[num_tokens, hidden_size] -> [num_tokens, hidden_size]."""
        return self.down(silu_and_mul(self.gate_up(hidden)))  # type: ignore[no-any-return]
