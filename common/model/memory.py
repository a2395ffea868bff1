"""What weights and a step's tensors will need, reckoned from the config before anything is loaded."""

from __future__ import annotations

from common.attention.torch_attention import MAX_GATHERED_KEYS
from common.model.architecture import ArchitectureConfig
from common.model.weight_layout import WeightLayout

# Rows of logits that are alive at once: a copy in the model's dtype, one in float32, and the sampler's own.
LOGITS_COPIES = 4


def weight_bytes(architecture: ArchitectureConfig, num_elements: int, itemsize: int, layout: WeightLayout) -> int:
    """Of a checkpoint of so many elements in a layout. Panels hold every matrix; a table of token embeddings stays."""
    matrix_bytes = _matrix_elements(architecture) * itemsize
    rows_bytes = num_elements * itemsize
    match layout:
        case WeightLayout.ROWS:
            return rows_bytes
        case WeightLayout.BOTH:
            return rows_bytes + matrix_bytes
        case WeightLayout.PANELS:
            tied_bytes = architecture.vocab_size * architecture.hidden_size * itemsize
            return rows_bytes + (tied_bytes if architecture.tie_word_embeddings else 0)


def _matrix_elements(architecture: ArchitectureConfig) -> int:
    hidden_size = architecture.hidden_size
    num_heads = 2 * architecture.num_q_heads + 2 * architecture.num_kv_heads  # of queries and output, keys and values
    layer = hidden_size * (num_heads * architecture.head_dim + 3 * architecture.intermediate_size)
    return architecture.num_layers * layer + architecture.vocab_size * hidden_size


def activation_bytes(
    architecture: ArchitectureConfig,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
    itemsize: int,
) -> int:
    """The largest step's tensors: one layer's, since layers follow each other, and the sampled rows' logits."""
    num_heads = architecture.num_q_heads + 2 * architecture.num_kv_heads
    # the residual stream is float32: of half-width numbers it takes two
    row = 5 * architecture.hidden_size + 3 * architecture.intermediate_size + 3 * num_heads * architecture.head_dim
    step_bytes = max_num_batched_tokens * row * itemsize
    logits_bytes = LOGITS_COPIES * min(max_num_seqs, max_num_batched_tokens) * architecture.vocab_size * 4
    return step_bytes + logits_bytes + _attention_bytes(max_num_batched_tokens, architecture, max_model_len, itemsize)


def _attention_bytes(num_tokens: int, architecture: ArchitectureConfig, max_model_len: int, itemsize: int) -> int:
    """Of the torch backend: a mask for each kind of window, and one layer's keys and values, gathered.

    Decoding requests and a chunk may each gather in the same step.
    """
    mask_bytes = len(set(architecture.windows)) * num_tokens * max_model_len * itemsize
    num_gathered = max(MAX_GATHERED_KEYS, max_model_len) + max_model_len
    return mask_bytes + 2 * num_gathered * architecture.num_kv_heads * architecture.head_dim * itemsize
