"""Steps in one native call: the whole decoder, from token ids to the last norm.

Keeps the weights in panels, which steps of few tokens stream best. Where the model keeps its own copy too, it computes
the steps of many tokens itself, layer by layer.
"""

from __future__ import annotations

import ctypes

import torch
from torch import nn

from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import KVCacheLayers
from common.attention.native_attention import NativeAttentionPlan
from common.kernels.cpu import abi
from common.kernels.cpu.huge_pages import HugeArena
from common.kernels.cpu.library import CpuLibrary
from common.kernels.cpu.packed_linear import PackedLinear, pack_linear, packed_bytes
from common.kernels.cpu.paged_kv import kv_cache_struct
from common.model.architecture import ArchitectureConfig
from common.model.causal_lm import CausalLM, DecoderLayer
from common.model.linear import Linear
from common.model.weight_layout import WeightLayout

MAX_ROWS = 64  # tokens of a step that panels serve better than rows, where there are both


class NativeDecoder:
    """Made after the weights are loaded, which it copies and, to keep panels alone, takes from the model.

    One thread at a time.
    """

    def __init__(self, model: CausalLM, library: CpuLibrary, layout: WeightLayout) -> None:
        architecture = model.architecture
        self._library = library
        self._only_panels = layout is WeightLayout.PANELS
        self._dtype = model.embedding.dtype
        self._hidden_size = architecture.hidden_size
        self._arena = HugeArena(decoder_bytes(architecture, library.panel_columns, self._dtype.itemsize))
        self._embedding = model.embedding
        self._rotary = model.rotary.table
        self._layers = (abi.DecoderLayer * architecture.num_layers)()
        self._kept: list[object] = []  # what the structs point to
        for struct, layer, window in zip(self._layers, model.layers, architecture.windows, strict=True):
            assert isinstance(layer, DecoderLayer)
            self._fill(struct, layer, window)
        self._lm_head = self._pack(model.lm_head, None)
        if self._only_panels and model.lm_head is not model.embedding:
            model.lm_head = released(model.lm_head)
        self._decoder = abi.Decoder(
            num_layers=architecture.num_layers,
            hidden_size=architecture.hidden_size,
            intermediate_size=architecture.intermediate_size,
            heads=abi.HeadShape(architecture.num_q_heads, architecture.num_kv_heads, architecture.head_dim),
            epsilon=architecture.rms_norm_eps,
            scale=architecture.head_dim**-0.5,
            embedding=self._embedding.data_ptr(),
            rotary=self._rotary.data_ptr(),
            norm=self._float(model.norm),
            layers=self._layers,
        )
        self._bound: KVCacheLayers | None = None

    def takes(self, num_rows: int) -> bool:
        return self._only_panels or num_rows <= MAX_ROWS

    def forward(self, batch: ForwardBatch, kv_cache: KVCacheLayers) -> torch.Tensor:
        """As CausalLM's: [num_tokens, hidden_size]."""
        if self._bound is not kv_cache:
            self._bind(kv_cache)
        plan = NativeAttentionPlan.of(batch)
        token_ids = batch.token_ids.contiguous()
        hidden = torch.empty(batch.num_tokens, self._hidden_size, dtype=self._dtype)
        call = abi.StepCall(
            decoder=ctypes.pointer(self._decoder),
            num_rows=batch.num_tokens,
            token_ids=token_ids.data_ptr(),
            slots=plan.slots.data_ptr(),
            block_tables=plan.block_tables.data_ptr(),
            table_stride=plan.block_tables.shape[1],
            rows=plan.row_struct,
            chunks=plan.chunk_array,
            num_chunks=len(plan.chunks),
            hidden=hidden.data_ptr(),
        )
        self._library.step(self._dtype, call)
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[num_rows, hidden_size] -> [num_rows, vocab_size] float32."""
        return self._lm_head(self._library, hidden, float_output=True)

    def _bind(self, kv_cache: KVCacheLayers) -> None:
        for index, struct in enumerate(self._layers):
            struct.cache = kv_cache_struct(*kv_cache.layer(index))
        self._bound = kv_cache

    def _fill(self, struct: abi.DecoderLayer, layer: DecoderLayer, window: int | None) -> None:
        attention, mlp = layer.attention, layer.mlp
        struct.attention_norm = self._float(layer.attention_norm)
        struct.qkv = self._linear(attention.qkv)
        struct.qk_norm = None if attention.qk_norm is None else self._float(attention.qk_norm)
        struct.output = self._linear(attention.output)
        struct.mlp_norm = self._float(layer.mlp_norm)
        struct.gate_up = self._linear(mlp.gate_up, silu_gate=True)
        struct.down = self._linear(mlp.down)
        struct.window = window or 0

    def _linear(self, layer: Linear, *, silu_gate: bool = False) -> abi.Matrix:
        packed = self._pack(layer.weight, layer.bias, silu_gate=silu_gate)
        if self._only_panels:
            layer.weight = released(layer.weight)
        return packed.matrix

    def _pack(self, weight: torch.Tensor, bias: torch.Tensor | None, *, silu_gate: bool = False) -> PackedLinear:
        columns = self._library.panel_columns
        packed = pack_linear(weight, bias, panel_columns=columns, silu_gate=silu_gate, arena=self._arena)
        self._kept.append(packed)
        return packed

    def _float(self, parameter: torch.Tensor) -> int:
        kept = parameter.float().contiguous()
        self._kept.append(kept)
        return kept.data_ptr()


def released(parameter: torch.Tensor) -> nn.Parameter:
    """Stands in for a parameter whose memory is given back."""
    return nn.Parameter(torch.empty(0, dtype=parameter.dtype), requires_grad=False)


def decoder_bytes(architecture: ArchitectureConfig, panel_columns: int, itemsize: int) -> int:
    """What the panels take, padding included."""
    hidden_size, intermediate_size = architecture.hidden_size, architecture.intermediate_size
    attended_size = architecture.num_q_heads * architecture.head_dim
    num_heads = architecture.num_q_heads + 2 * architecture.num_kv_heads
    layer = (
        (num_heads * architecture.head_dim, hidden_size),
        (hidden_size, attended_size),
        (2 * intermediate_size, hidden_size),
        (hidden_size, intermediate_size),
    )
    layer_bytes = sum(packed_bytes(rows, depth, panel_columns, itemsize) for rows, depth in layer)
    head_bytes = packed_bytes(architecture.vocab_size, hidden_size, panel_columns, itemsize)
    return architecture.num_layers * layer_bytes + head_bytes
