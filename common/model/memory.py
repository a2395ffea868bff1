"""What a step's tensors will need beside weights and KV cache, reckoned from the config before anything is loaded."""

from __future__ import annotations

from common.attention.torch_attention import MAX_GATHERED_KEYS
from common.config import EngineConfig
from common.model.architecture import ArchitectureConfig

# Rows of logits that are alive at once: a copy in the model's dtype, one in float32, and the sampler's own.
LOGITS_COPIES = 4


def activation_bytes(config: EngineConfig, architecture: ArchitectureConfig, max_model_len: int, itemsize: int) -> int:
    """The largest step's tensors: one layer's, since layers follow each other, and the sampled rows' logits."""
    num_tokens = config.max_num_batched_tokens
    num_heads = architecture.num_q_heads + 2 * architecture.num_kv_heads
    row = 4 * architecture.hidden_size + 3 * architecture.intermediate_size + 3 * num_heads * architecture.head_dim
    step_bytes = num_tokens * row * itemsize
    logits_bytes = LOGITS_COPIES * min(config.max_num_seqs, num_tokens) * architecture.vocab_size * 4
    return step_bytes + logits_bytes + _attention_bytes(num_tokens, architecture, max_model_len, itemsize)


def _attention_bytes(num_tokens: int, architecture: ArchitectureConfig, max_model_len: int, itemsize: int) -> int:
    """Of the torch backend: a mask for each kind of window, and one layer's keys and values, gathered.

    Decoding requests and a chunk may each gather in the same step.
    """
    mask_bytes = len(set(architecture.windows)) * num_tokens * max_model_len * itemsize
    num_gathered = max(MAX_GATHERED_KEYS, max_model_len) + max_model_len
    return mask_bytes + 2 * num_gathered * architecture.num_kv_heads * architecture.head_dim * itemsize
