"""Collects the blocks of some requests into contiguous keys or values."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGather:
    """Indices that fit every view with the strides of the one that it was made for.

    Where a block's heads each lie in one piece, at a distance that divides the distance of blocks (block-major slabs,
    and per-layer pools too), the view is read as a matrix of head pieces and one copy gives keys in attention's order.
    Any other strides cost a second copy.
    """

    index: torch.Tensor  # flat int64: pieces (request, head, block), or blocks (request, block)
    num_requests: int
    num_blocks: int
    by_pieces: bool

    @classmethod
    def of(cls, view: torch.Tensor, block_tables: torch.Tensor) -> BlockGather:
        """view: [num_blocks, num_kv_heads, block_size, head_dim]; block_tables: [num_requests, num_blocks] int32."""
        num_requests, num_blocks = block_tables.shape
        blocks = block_tables.to(torch.int64)
        by_pieces = _has_pieces(view)
        if by_pieces:
            heads = torch.arange(view.shape[1], device=view.device)
            blocks = blocks[:, None, :] * (view.stride(0) // view.stride(1)) + heads[:, None]
        return cls(index=blocks.flatten(), num_requests=num_requests, num_blocks=num_blocks, by_pieces=by_pieces)

    def __call__(self, view: torch.Tensor) -> torch.Tensor:
        """[num_requests, num_kv_heads, num_blocks * block_size, head_dim], contiguous."""
        num_kv_heads, block_size, head_dim = view.shape[1:]
        shape = (self.num_requests, num_kv_heads, self.num_blocks * block_size, head_dim)
        if self.by_pieces:
            return _pieces(view).index_select(0, self.index).view(shape)
        blocks = view.index_select(0, self.index).view(self.num_requests, self.num_blocks, *view.shape[1:])
        return blocks.transpose(1, 2).reshape(shape)


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
