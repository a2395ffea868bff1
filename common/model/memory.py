"""What a model's weights and activations will need, and what is free: reckoned before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import psutil
import torch

from common.config import EngineConfig
from common.model.architecture import ArchitectureConfig

# Rows of logits that are alive at once: a copy in the model's dtype, one in float32, and the sampler's own.
LOGITS_COPIES = 4
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
CGROUP_USAGE = Path("/sys/fs/cgroup/memory.current")


def free_memory(device: torch.device) -> int:
    """Bytes that a new process may take: of the device, or of the machine within its cgroup's limit."""
    if device.type == "cuda":
        free_bytes: int = torch.cuda.mem_get_info(device)[0]
        return free_bytes
    available: int = psutil.virtual_memory().available
    try:
        limit, usage = CGROUP_LIMIT.read_text().strip(), int(CGROUP_USAGE.read_text())
    except OSError:
        return available
    return available if limit == "max" else min(available, int(limit) - usage)


def activation_bytes(config: EngineConfig, architecture: ArchitectureConfig, max_model_len: int, itemsize: int) -> int:
    """The largest step's tensors: one layer's, since layers follow each other, and the sampled rows' logits."""
    num_heads = architecture.num_q_heads + 2 * architecture.num_kv_heads
    row = 4 * architecture.hidden_size + 3 * architecture.intermediate_size + 3 * num_heads * architecture.head_dim
    step_bytes = config.max_num_batched_tokens * row * itemsize
    logits_bytes = LOGITS_COPIES * config.max_num_seqs * architecture.vocab_size * 4
    gathered = 4 * max_model_len * architecture.num_kv_heads * architecture.head_dim * itemsize
    return step_bytes + logits_bytes + gathered
