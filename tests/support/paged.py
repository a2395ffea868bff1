"""A paged KV cache and forward batches made by hand, so that a model can be tested without an engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import LayerKVCache


class PagedCache:
    """Block-major slabs, given out in a shuffled order. Slots hold NaN until they are written."""

    def __init__(
        self,
        *,
        num_blocks: int,
        num_layers: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        seed: int = 3,
    ) -> None:
        # [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim]
        shape = (num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim)
        self.slabs = torch.full(shape, torch.nan, dtype=dtype)
        self.block_size = block_size
        self._free = list(range(num_blocks))
        random.Random(seed).shuffle(self._free)

    def layer(self, layer: int) -> LayerKVCache:
        return LayerKVCache(self.slabs[:, layer, 0], self.slabs[:, layer, 1])

    def allocate(self) -> int:
        return self._free.pop()


@dataclass
class PagedSequence:
    """Tokens of one request, and the blocks that hold their keys and values."""

    token_ids: list[int]
    num_computed: int = 0
    block_ids: list[int] = field(default_factory=list)


def make_batch(cache: PagedCache, scheduled: Sequence[tuple[PagedSequence, int]]) -> ForwardBatch:
    """The next `count` tokens of each sequence; blocks are allocated as they are needed. Logits of every row."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts, seq_lens = [0], []
    for sequence, count in scheduled:
        end = sequence.num_computed + count
        while len(sequence.block_ids) * cache.block_size < end:
            sequence.block_ids.append(cache.allocate())
        for position in range(sequence.num_computed, end):
            block_id = sequence.block_ids[position // cache.block_size]
            token_ids.append(sequence.token_ids[position])
            positions.append(position)
            slots.append(block_id * cache.block_size + position % cache.block_size)
        sequence.num_computed = end
        starts.append(starts[-1] + count)
        seq_lens.append(end)
    width = max(len(sequence.block_ids) for sequence, _ in scheduled)
    tables = [sequence.block_ids + [0] * (width - len(sequence.block_ids)) for sequence, _ in scheduled]
    return ForwardBatch(
        token_ids=torch.tensor(token_ids),
        positions=torch.tensor(positions),
        slot_mapping=torch.tensor(slots),
        block_tables=torch.tensor(tables, dtype=torch.int32),
        query_start_loc=torch.tensor(starts, dtype=torch.int32),
        seq_lens=torch.tensor(seq_lens, dtype=torch.int32),
        logits_indices=torch.arange(len(token_ids)),
        query_start_loc_cpu=tuple(starts),
        seq_lens_cpu=tuple(seq_lens),
    )
