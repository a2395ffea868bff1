"""Steps for attention backends: inputs, a cache, and what attention by the textbook gives for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from common.attention.backend import AttentionBackend
from common.attention.layer_kv_cache import LayerKVCache
from common.kernels import reference
from tests.support.paged import PagedCache, PagedSequence, make_batch


@dataclass(frozen=True, kw_only=True)
class Heads:
    num_q_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 8


SMALL = Heads()

# (tokens already in the cache, tokens of this step) of each request
BATCHES = {
    "first_chunk": [(0, 21)],
    "one_token_prompt": [(0, 1)],
    "later_chunk": [(19, 14)],
    "decode": [(37, 1)],
    "decode_of_one_length": [(31, 1), (31, 1)],
    "decode_at_block_end": [(15, 1), (31, 1)],
    "decode_of_many_lengths": [(0, 1), (5, 1), (16, 1), (33, 1), (150, 1), (17, 1)],
    "mixed": [(0, 40), (12, 1), (24, 9), (70, 1), (0, 3), (3, 1)],
    "two_first_chunks": [(0, 18), (0, 33)],
}


@dataclass
class Step:
    """A step's inputs and what attention by the textbook gives for them."""

    cache: PagedCache
    sequences: list[PagedSequence]
    counts: list[int]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    expected: torch.Tensor  # [num_tokens, num_q_heads * head_dim]


def make_step(
    lengths: list[tuple[int, int]],
    *,
    window: int | None,
    block_size: int = 16,
    heads: Heads = SMALL,
    dtype: torch.dtype = torch.float32,
    num_blocks: int = 64,
) -> Step:
    """Earlier keys and values are in the cache, whose other slots hold NaN."""
    generator = torch.Generator().manual_seed(1)
    cache = PagedCache(
        num_blocks=num_blocks,
        num_layers=2,
        num_kv_heads=heads.num_kv_heads,
        block_size=block_size,
        head_dim=heads.head_dim,
        dtype=dtype,
    )
    sequences, queries, keys, values, outputs = [], [], [], [], []
    for context, count in lengths:
        sequence = PagedSequence([0] * (context + count))
        query = torch.randn(count, heads.num_q_heads, heads.head_dim, generator=generator).to(dtype)
        key = torch.randn(context + count, heads.num_kv_heads, heads.head_dim, generator=generator).to(dtype)
        value = torch.randn(context + count, heads.num_kv_heads, heads.head_dim, generator=generator).to(dtype)
        for position in range(context):
            if position % block_size == 0:
                sequence.block_ids.append(cache.allocate())
            slot = sequence.block_ids[-1], slice(None), position % block_size
            cache.layer(1).key[slot], cache.layer(1).value[slot] = key[position], value[position]
        sequence.num_computed = context
        outputs.append(reference.attention(query, key, value, window).flatten(1))
        sequences.append(sequence)
        queries.append(query)
        keys.append(key[context:])
        values.append(value[context:])
    return Step(
        cache=cache,
        sequences=sequences,
        counts=[count for _, count in lengths],
        query=torch.cat(queries),
        key=torch.cat(keys),
        value=torch.cat(values),
        expected=torch.cat(outputs),
    )


def attend(backend: AttentionBackend, step: Step, layer: LayerKVCache, window: int | None) -> torch.Tensor:
    batch = make_batch(step.cache, list(zip(step.sequences, step.counts, strict=True)))
    plan = backend.plan(batch, layer, (window, None) if window else (None,))
    scale = step.query.shape[-1] ** -0.5
    return backend.attend(plan, step.query, step.key, step.value, layer, scale=scale, window=window)


def relaid(view: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers with the strides of another pool."""
    match layout:
        case "per_layer":
            return view.contiguous()
        case "token_major":  # [num_blocks, block_size, num_kv_heads, head_dim] in memory
            return view.transpose(1, 2).contiguous().transpose(1, 2)
        case "padded":
            return torch.cat((view, view), dim=-1)[..., : view.shape[-1]]
        case _:
            return view
