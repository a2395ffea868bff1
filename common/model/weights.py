"""Which tensors of a checkpoint make up which parameter of a `CausalLM`, and their loading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from common.errors import UnsupportedModelError
from common.model.architecture import ArchitectureConfig
from common.model.causal_lm import CausalLM
from common.model.checkpoint import Checkpoint

IGNORED_SUFFIXES = ("rotary_emb.inv_freq",)  # recomputed from the config


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSource:
    """A parameter is the checkpoint's tensors, one below the other; `repeats` are the rows that each one fills."""

    parameter: str
    tensors: tuple[str, ...]
    repeats: tuple[int, ...] | None = None


def parameter_sources(architecture: ArchitectureConfig) -> Iterator[ParameterSource]:
    """Each parameter of the model once."""
    yield ParameterSource(parameter="embedding", tensors=("model.embed_tokens.weight",))
    yield ParameterSource(parameter="norm", tensors=("model.norm.weight",))
    if not architecture.tie_word_embeddings:
        yield ParameterSource(parameter="lm_head", tensors=("lm_head.weight",))
    for layer in range(architecture.num_layers):
        yield from _layer_sources(architecture, f"layers.{layer}", f"model.layers.{layer}")


def load_weights(model: CausalLM, checkpoint: Checkpoint) -> None:
    """Copies every tensor to its place, cast to the model's dtype.

    Raises UnsupportedModelError for a tensor that is missing, has another shape, or has no place in the model.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    used: set[str] = set()
    with checkpoint.reader() as reader:
        for source in parameter_sources(model.architecture):
            tensors = [reader.read(name) for name in source.tensors]
            if source.repeats is not None:
                tensors = [tensor.expand(rows, -1) for tensor, rows in zip(tensors, source.repeats, strict=True)]
            _fill(parameters[source.parameter], tensors, source)
            used.update(source.tensors)
    unused = {name for name in checkpoint.entries if name not in used and not name.endswith(IGNORED_SUFFIXES)}
    if model.architecture.tie_word_embeddings:
        unused.discard("lm_head.weight")
    if unused:
        raise UnsupportedModelError(
            f"{checkpoint.folder} has {len(unused)} tensors that {model.architecture.architecture} has no place for, "
            f"such as {min(unused)}"
        )


def _fill(parameter: torch.Tensor, tensors: list[torch.Tensor], source: ParameterSource) -> None:
    num_rows = sum(tensor.shape[0] for tensor in tensors)
    shapes = {(num_rows, *tensor.shape[1:]) for tensor in tensors}
    if shapes != {tuple(parameter.shape)}:
        found = ", ".join(str(tuple(tensor.shape)) for tensor in tensors)
        raise UnsupportedModelError(
            f"{', '.join(source.tensors)} of shape {found} can't fill {source.parameter} of {tuple(parameter.shape)}"
        )
    start = 0
    for tensor in tensors:
        parameter[start : start + tensor.shape[0]].copy_(tensor)
        start += tensor.shape[0]


def _layer_sources(architecture: ArchitectureConfig, ours: str, theirs: str) -> Iterator[ParameterSource]:
    def fused(parameter: str, names: tuple[str, ...], kinds: tuple[str, ...]) -> Iterator[ParameterSource]:
        for kind in kinds:
            tensors = tuple(f"{theirs}.{name}.{kind}" for name in names)
            yield ParameterSource(parameter=f"{ours}.{parameter}.{kind}", tensors=tensors)

    def kinds(bias: bool) -> tuple[str, ...]:
        return ("weight", "bias") if bias else ("weight",)

    projections = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    yield from fused("attention.qkv", projections, kinds(architecture.qkv_bias))
    yield from fused("attention.output", ("self_attn.o_proj",), kinds(architecture.output_bias))
    yield from fused("mlp.gate_up", ("mlp.gate_proj", "mlp.up_proj"), kinds(architecture.mlp_bias))
    yield from fused("mlp.down", ("mlp.down_proj",), kinds(architecture.mlp_bias))
    yield ParameterSource(parameter=f"{ours}.attention_norm", tensors=(f"{theirs}.input_layernorm.weight",))
    yield ParameterSource(parameter=f"{ours}.mlp_norm", tensors=(f"{theirs}.post_attention_layernorm.weight",))
    if architecture.qk_norm:
        yield ParameterSource(
            parameter=f"{ours}.attention.qk_norm",
            tensors=(f"{theirs}.self_attn.q_norm.weight", f"{theirs}.self_attn.k_norm.weight"),
            repeats=(architecture.num_q_heads, architecture.num_kv_heads),
        )
