"""Chooses the attention backend by name. The choice is named in the log, never silent."""

from __future__ import annotations

import logging

import torch

from common.attention.backend import AttentionBackend
from common.attention.torch_attention import TorchAttention
from common.errors import ConfigError

BACKENDS: dict[str, type[AttentionBackend]] = {TorchAttention.name: TorchAttention}

logger = logging.getLogger(__name__)


def select_attention_backend(name: str, device: torch.device) -> AttentionBackend:
    """The backend called `name`; 'auto' takes the best one for the device. Raises ConfigError for an unknown name."""
    chosen = TorchAttention.name if name == "auto" else name
    if chosen not in BACKENDS:
        raise ConfigError("attention_backend", f"must be auto or one of {', '.join(BACKENDS)}, is {name!r}")
    logger.info("attention backend: %s (asked for %s, on %s)", chosen, name, device)
    return BACKENDS[chosen]()
