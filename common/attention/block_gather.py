"""Collects the blocks of some requests into contiguous keys or values."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from common.attention.layer_kv_cache import LayerKVCache


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGather:
    """Indices that fit every view with the strides of the one that it was made for, and the room for what they collect.

    The room is written anew for each layer: memory that the system has to map for each call costs ten times the copy.

    Where a block's heads each lie in one piece, at a distance that divides the distance of blocks (block-major slabs,
    and per-layer pools too), the view is read as a matrix of head pieces and one copy gives keys in attention's order.
    Any other strides cost a second copy.
    """

    index: torch.Tensor  # flat int64: pieces (request, head, block), or blocks (request, block)
    keys: torch.Tensor  # [num_requests, num_kv_heads, num_blocks * block_size, head_dim]
    values: torch.Tensor  # as keys
    by_pieces: bool

    @classmethod
    def of(cls, view: torch.Tensor, block_tables: torch.Tensor) -> BlockGather:
        """view: [num_blocks, num_kv_heads, block_size, head_dim]; block_tables: [num_requests, num_blocks] int32."""
        blocks = block_tables.to(torch.int64)
        num_requests, num_blocks = blocks.shape
        _, num_kv_heads, block_size, head_dim = view.shape
        by_pieces = _has_pieces(view)
        if by_pieces:
            heads = torch.arange(num_kv_heads, device=view.device)
            blocks = blocks[:, None, :] * (view.stride(0) // view.stride(1)) + heads[:, None]
        shape = (num_requests, num_kv_heads, num_blocks * block_size, head_dim)
        return cls(
            index=blocks.flatten(), keys=view.new_empty(shape), values=view.new_empty(shape), by_pieces=by_pieces
        )

    def __call__(self, cache: LayerKVCache) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values, each [num_requests, num_kv_heads, num_blocks * block_size, head_dim], contiguous and valid
        until the next call."""
        self._collect(cache.key, self.keys)
        self._collect(cache.value, self.values)
        return self.keys, self.values

    def _collect(self, view: torch.Tensor, room: torch.Tensor) -> None:
        if self.by_pieces:
            pieces = _pieces(view)
            torch.index_select(pieces, 0, self.index, out=room.view(-1, pieces.shape[1]))
            return
        num_requests, num_kv_heads, num_keys, head_dim = room.shape
        block_size = view.shape[2]
        blocks = view.index_select(0, self.index).view(num_requests, -1, num_kv_heads, block_size, head_dim)
        room.view(num_requests, num_kv_heads, num_keys // block_size, block_size, head_dim).copy_(
            blocks.transpose(1, 2)
        )


def _has_pieces(view: torch.Tensor) -> bool:
    _, _, block_size, head_dim = view.shape
    block_stride, head_stride, token_stride, element_stride = view.stride()
    piece = block_size * head_dim
    return (element_stride, token_stride, head_stride) == (1, head_dim, piece) and block_stride % piece == 0


def _pieces(view: torch.Tensor) -> torch.Tensor:
    """The view's memory as rows [num_pieces, block_size * head_dim], from its first block's first head on."""
    num_blocks, num_kv_heads, block_size, head_dim = view.shape
    piece = block_size * head_dim
    num_pieces = (num_blocks - 1) * (view.stride(0) // piece) + num_kv_heads
    return view.as_strided((num_pieces, piece), (piece, 1))
