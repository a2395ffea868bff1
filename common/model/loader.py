"""Loads a model: files, architecture, weights, and what others must know of it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import torch

from common.attention.backend import AttentionBackend
from common.attention.native_attention import NativeAttention
from common.attention.selection import AttentionNeeds, select_attention_backend
from common.checkpoint import resolve_model, served_name
from common.config import DType, EngineConfig
from common.errors import ConfigError
from common.kernels.dtypes import TORCH_DTYPES
from common.kv.spec import KVCacheSpec
from common.model.architecture import ArchitectureConfig, read_eos_token_ids
from common.model.causal_lm import CausalLM
from common.model.checkpoint import Checkpoint
from common.model.fingerprint import model_fingerprint
from common.model.memory import activation_bytes, weight_bytes
from common.model.native_decoder import NativeDecoder
from common.model.weight_layout import WeightLayout, best_layout
from common.model.weights import load_weights

logger = logging.getLogger(__name__)

# Of a step, by device: as few as matrices need to be computed at full speed, for all of a step waits for its end.
DEFAULT_STEP_TOKENS = {"cpu": 512, "cuda": 2048}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """What is known of a model before its weights are read. Lengths are tokens."""

    checkpoint: Checkpoint
    architecture: ArchitectureConfig
    spec: KVCacheSpec
    served_name: str
    fingerprint: bytes
    eos_token_ids: frozenset[int]
    max_model_len: int
    max_num_batched_tokens: int
    dtype: str
    device: torch.device
    attention: AttentionBackend
    layout: WeightLayout
    weight_bytes: int
    activation_bytes: int


def describe_model(config: EngineConfig, layout: WeightLayout = WeightLayout.BOTH) -> ModelDescription:
    """Chooses the attention backend too, for memory depends on it.

    Raises ConfigError or UnsupportedModelError, with what to change.
    """
    folder = resolve_model(config.model)
    architecture = ArchitectureConfig.load(folder)
    checkpoint = Checkpoint.open(folder)
    dtype = checkpoint.dtype if config.dtype is DType.AUTO else config.dtype.value
    max_model_len = _select_max_model_len(config, architecture)
    itemsize = TORCH_DTYPES[dtype].itemsize
    device = _select_device(config.device)
    max_num_batched_tokens = config.max_num_batched_tokens or DEFAULT_STEP_TOKENS[device.type]
    attention = select_attention_backend(
        config.attention_backend,
        AttentionNeeds(
            device=device,
            dtype=TORCH_DTYPES[dtype],
            num_q_heads=architecture.num_q_heads,
            num_kv_heads=architecture.num_kv_heads,
            head_dim=architecture.head_dim,
        ),
    )
    layout = best_layout(layout, attention, TORCH_DTYPES[dtype])
    return ModelDescription(
        checkpoint=checkpoint,
        architecture=architecture,
        spec=architecture.kv_cache_spec(block_size=config.block_size, dtype=dtype),
        served_name=config.served_model_name or served_name(config.model, folder),
        fingerprint=model_fingerprint(architecture, checkpoint),
        eos_token_ids=read_eos_token_ids(folder),
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        dtype=dtype,
        device=device,
        attention=attention,
        layout=layout,
        weight_bytes=weight_bytes(architecture, checkpoint.num_elements, itemsize, layout),
        activation_bytes=activation_bytes(
            architecture,
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            max_model_len=max_model_len,
            itemsize=itemsize,
        ),
    )


def load_model(description: ModelDescription) -> CausalLM:
    """Raises UnsupportedModelError when the weights don't fit the config."""
    started_s = time.monotonic()
    model = CausalLM(
        description.architecture,
        description.attention,
        max_model_len=description.max_model_len,
        dtype=TORCH_DTYPES[description.dtype],
        device=description.device,
    )
    load_weights(model, description.checkpoint)
    if isinstance(description.attention, NativeAttention) and description.layout is not WeightLayout.ROWS:
        model.decoder = NativeDecoder(model, description.attention.library, description.layout)
    logger.info(
        "loaded %s in %s on %s in %.1f s",
        description.served_name,
        description.dtype,
        description.device,
        time.monotonic() - started_s,
    )
    return model.eval()


def _select_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError("device", f"must be auto, cpu, cuda or cuda:N, is {name!r}") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError("device", f"must be auto, cpu, cuda or cuda:N, is {name!r}")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device", f"{name} was asked for, but this torch sees no CUDA device; cpu would work")
    return device


def _select_max_model_len(config: EngineConfig, architecture: ArchitectureConfig) -> int:
    longest = architecture.max_position_embeddings
    if config.max_model_len is None:
        return longest
    if not 2 <= config.max_model_len <= longest:
        raise ConfigError("max_model_len", f"must be from 2 to the model's {longest}, is {config.max_model_len}")
    return config.max_model_len
