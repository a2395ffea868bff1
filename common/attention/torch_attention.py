"""Attention in plain torch: the reference that always works and that every other backend is tested against.

Requests with one query token are computed together, padded to the longest of their length class; longer chunks one by
one. A sliding window is a mask over a cache that keeps everything. Grouped queries share their keys without copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention

from common.attention.block_gather import BlockGather
from common.attention.forward_batch import ForwardBatch
from common.attention.layer_kv_cache import LayerKVCache

MAX_GATHERED_KEYS = 32_768  # of requests that decode together, padding included: bounds what one layer's copy takes
QUERY_TILE = 512  # rows of a chunk that share one mask: bounds the mask, and skips most of the causal half

Masks = dict[int | None, torch.Tensor | None]  # by window: additive, or None where every key is visible


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGroup:
    """Requests with one query token each and about the same length."""

    rows: torch.Tensor  # [num_requests] int64: rows of the batch
    gather: BlockGather
    unwritten: torch.Tensor  # [num_unwritten] int64: gathered rows (request, head, key) past a request's end
    masks: Masks  # each [num_requests, 1, 1, num_blocks * block_size]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTile:
    """Some rows of a chunk, and the keys that the last of them may see."""

    start: int  # first row in the batch
    end: int
    num_keys: int
    masks: Masks  # each [end - start, num_keys]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillChunk:
    """One request with several query tokens. Without cached context it needs no look into the cache."""

    start: int  # first row in the batch
    end: int
    gather: BlockGather | None  # None where no window needs it
    tiles: tuple[QueryTile, ...]
    causal_windows: frozenset[int | None]  # windows under which the chunk is plainly causal over its own rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchAttentionPlan:
    slot_blocks: torch.Tensor  # [num_tokens] int64
    slot_offsets: torch.Tensor  # [num_tokens] int64
    decode_groups: tuple[DecodeGroup, ...]
    chunks: tuple[PrefillChunk, ...]


class TorchAttention:
    """`AttentionBackend` for any device and dtype. Holds no state."""

    name = "torch"
    description = "torch"

    def plan(self, batch: ForwardBatch, cache: LayerKVCache, windows: Sequence[int | None]) -> TorchAttentionPlan:
        block_size = cache.block_size
        starts, seq_lens = batch.query_start_loc_cpu, batch.seq_lens_cpu
        query_lens = [end - start for start, end in pairwise(starts)]
        by_length: dict[int, list[int]] = {}
        for request, query_len in enumerate(query_lens):
            if query_len == 1:
                num_blocks = -(-seq_lens[request] // block_size)
                by_length.setdefault((num_blocks - 1).bit_length(), []).append(request)
        return TorchAttentionPlan(
            slot_blocks=batch.slot_mapping // block_size,
            slot_offsets=batch.slot_mapping % block_size,
            decode_groups=tuple(
                _plan_decode(batch, cache, windows, group)
                for bits, requests in by_length.items()
                for group in _split(requests, MAX_GATHERED_KEYS // (block_size << bits))
            ),
            chunks=tuple(
                _plan_chunk(batch, cache, windows, request)
                for request, query_len in enumerate(query_lens)
                if query_len > 1
            ),
        )

    def attend(
        self,
        plan: TorchAttentionPlan,
        query: torch.Tensor,  # [num_tokens, num_q_heads, head_dim]
        key: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        value: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
        cache: LayerKVCache,
        *,
        scale: float,
        window: int | None,
    ) -> torch.Tensor:
        cache.key[plan.slot_blocks, :, plan.slot_offsets] = key
        cache.value[plan.slot_blocks, :, plan.slot_offsets] = value
        if len(plan.decode_groups) == 1 and not plan.chunks:
            return _attend_decode(plan.decode_groups[0], query, cache, scale, window)
        output = query.new_empty(query.shape[0], query.shape[1] * query.shape[2])
        for group in plan.decode_groups:
            output[group.rows] = _attend_decode(group, query[group.rows], cache, scale, window)
        for chunk in plan.chunks:
            if window in chunk.causal_windows:
                rows = slice(chunk.start, chunk.end)
                output[rows] = _attend_causal(query[rows], key[rows], value[rows], scale)
            else:
                _attend_chunk(chunk, query, cache, scale, window, output)
        return output


def _split(requests: list[int], max_requests: int) -> list[list[int]]:
    size = max(1, max_requests)
    return [requests[start : start + size] for start in range(0, len(requests), size)]


def _plan_decode(
    batch: ForwardBatch, cache: LayerKVCache, windows: Sequence[int | None], requests: list[int]
) -> DecodeGroup:
    device = batch.positions.device
    seq_lens = [batch.seq_lens_cpu[request] for request in requests]
    num_blocks = -(-max(seq_lens) // cache.block_size)
    num_keys = num_blocks * cache.block_size
    selected = torch.tensor(requests, dtype=torch.int64, device=device)
    rows = torch.tensor([batch.query_start_loc_cpu[request] for request in requests], dtype=torch.int64, device=device)
    lengths = torch.tensor(seq_lens, device=device)
    masks: Masks = {}
    for window in windows:
        sees_all = min(seq_lens) == num_keys and (window is None or window >= num_keys)
        masks[window] = None if sees_all else _mask(lengths - 1, num_keys, window, cache.key.dtype)[:, None, None]
    is_unwritten = torch.arange(num_keys, device=device) >= lengths[:, None, None]
    return DecodeGroup(
        rows=rows,
        gather=BlockGather.of(cache.key, batch.block_tables[selected, :num_blocks]),
        unwritten=is_unwritten.expand(-1, cache.key.shape[1], -1).flatten().nonzero().flatten(),
        masks=masks,
    )


def _plan_chunk(batch: ForwardBatch, cache: LayerKVCache, windows: Sequence[int | None], request: int) -> PrefillChunk:
    start, end = batch.query_start_loc_cpu[request : request + 2]
    seq_len = batch.seq_lens_cpu[request]
    has_context = seq_len > end - start
    causal_windows = frozenset(
        window for window in windows if not has_context and (window is None or window >= seq_len)
    )
    masked_windows = [window for window in windows if window not in causal_windows]
    tiles = []
    for tile_start in range(start, end, QUERY_TILE) if masked_windows else ():
        tile_end = min(tile_start + QUERY_TILE, end)
        num_keys = seq_len - (end - tile_end)
        positions = batch.positions[tile_start:tile_end]
        masks: Masks = {window: _mask(positions, num_keys, window, cache.key.dtype) for window in masked_windows}
        tiles.append(QueryTile(start=tile_start, end=tile_end, num_keys=num_keys, masks=masks))
    num_blocks = -(-seq_len // cache.block_size)
    return PrefillChunk(
        start=start,
        end=end,
        gather=BlockGather.of(cache.key, batch.block_tables[request : request + 1, :num_blocks]) if tiles else None,
        tiles=tuple(tiles),
        causal_windows=causal_windows,
    )


def _mask(positions: torch.Tensor, num_keys: int, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """[num_queries, num_keys]: 0 where a query at that position sees the key, else minus infinity."""
    keys = torch.arange(num_keys, device=positions.device)
    hidden = keys > positions[:, None]
    if window is not None:
        hidden |= keys <= positions[:, None] - window
    return torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, float("-inf"))


def _attend_decode(
    group: DecodeGroup,
    query: torch.Tensor,  # [num_requests, num_q_heads, head_dim]
    cache: LayerKVCache,
    scale: float,
    window: int | None,
) -> torch.Tensor:
    """[num_requests, num_q_heads * head_dim]. The queries that share a key head stand as rows of one query matrix."""
    num_requests, num_q_heads, head_dim = query.shape
    grouped = query.reshape(num_requests, cache.key.shape[1], -1, head_dim)
    # [num_requests, num_kv_heads, num_keys, head_dim] each
    keys, values = group.gather(cache)
    for gathered in (keys, values):  # a mask does not hide NaN, which an earlier user of the slot may have left
        gathered.view(-1, head_dim).index_fill_(0, group.unwritten, 0.0)
    attended = scaled_dot_product_attention(grouped, keys, values, attn_mask=group.masks[window], scale=scale)
    return attended.reshape(num_requests, num_q_heads * head_dim)


def _attend_causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """[query_len, num_q_heads * head_dim] of a chunk that starts its sequence."""
    attended = scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        key.transpose(0, 1)[None],
        value.transpose(0, 1)[None],
        is_causal=True,
        scale=scale,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1).flatten(1)


def _attend_chunk(
    chunk: PrefillChunk,
    query: torch.Tensor,  # [num_tokens, num_q_heads, head_dim]
    cache: LayerKVCache,
    scale: float,
    window: int | None,
    output: torch.Tensor,  # [num_tokens, num_q_heads * head_dim]
) -> None:
    assert chunk.gather is not None
    keys, values = chunk.gather(cache)  # [1, num_kv_heads, num_keys, head_dim]
    for tile in chunk.tiles:
        attended = scaled_dot_product_attention(
            query[tile.start : tile.end].transpose(0, 1)[None],
            keys[:, :, : tile.num_keys],
            values[:, :, : tile.num_keys],
            attn_mask=tile.masks[window],
            scale=scale,
            enable_gqa=True,
        )
        output[tile.start : tile.end] = attended[0].transpose(0, 1).flatten(1)
