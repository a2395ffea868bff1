"""Chooses the attention backend by name. The choice is named in the log, never silent."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from common.attention.backend import AttentionBackend
from common.attention.native_attention import NativeAttention
from common.attention.torch_attention import TorchAttention
from common.config import ATTENTION_BACKENDS
from common.errors import ConfigError
from common.kernels.cpu.abi import HeadShape
from common.kernels.cpu.library import CpuLibrary, NativeUnavailable
from common.kernels.cpu.paged_kv import refusal

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionNeeds:
    """What of a model decides which backends can serve it."""

    device: torch.device
    dtype: torch.dtype
    num_q_heads: int
    num_kv_heads: int
    head_dim: int


def select_attention_backend(name: str, needs: AttentionNeeds) -> AttentionBackend:
    """The backend called `name`; 'auto' takes the best one that can serve the model.

    Raises ConfigError for an unknown name, and for a backend that can't serve the model or isn't there.
    """
    if name not in ATTENTION_BACKENDS:
        raise ConfigError("attention_backend", f"must be one of {', '.join(ATTENTION_BACKENDS)}, is {name!r}")
    backend, reason = _choose(name, needs)
    logger.info("attention backend: %s (asked for %s, on %s)", backend.description, name, needs.device)
    if reason is not None and needs.device.type == "cpu":
        logger.warning("no native kernels, decoding is several times slower: %s", reason)
    return backend


def _choose(name: str, needs: AttentionNeeds) -> tuple[AttentionBackend, str | None]:
    """The backend, and why it isn't the native one where that was thought of."""
    if name == TorchAttention.name:
        return TorchAttention(), None
    try:
        return NativeAttention(_load(needs)), None
    except NativeUnavailable as error:
        if name == NativeAttention.name:
            raise ConfigError("attention_backend", f"native was asked for, but {error}") from error
        return TorchAttention(), str(error)


def _load(needs: AttentionNeeds) -> CpuLibrary:
    if needs.device.type != "cpu":
        raise NativeUnavailable(f"native kernels are for CPUs, not {needs.device}")
    reason = refusal(needs.dtype, HeadShape(needs.num_q_heads, needs.num_kv_heads, needs.head_dim))
    if reason is not None:
        raise NativeUnavailable(f"native kernels can't serve this model: {reason}")
    return CpuLibrary.load()
