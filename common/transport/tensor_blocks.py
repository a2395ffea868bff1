"""Blocks as tensors, for transports that move device memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from common.kv.sender import BlockWriter
from common.transport.arriving_blocks import ArrivingStream, PlacedPart


class TensorBlocks(BlockWriter, Protocol):
    @property
    def device(self) -> torch.device: ...

    def block_tensor(self, group_id: int, block_id: int) -> torch.Tensor:
        """[bytes_per_block] uint8: a view of the pool, on its device, or on the CPU where the block is swapped out."""
        ...

    def pool_tensors(self) -> Sequence[torch.Tensor]:
        """The memory that all blocks lie in."""
        ...


def write_tensor(stream: ArrivingStream, parts: Sequence[PlacedPart], data: torch.Tensor, blocks: TensorBlocks) -> None:
    """Scatters a [n] uint8 tensor on the pool's device to the places of its parts, in any thread."""
    if data.device.type == "cpu":
        stream.write(parts, data.numpy().data)
        return
    start = 0
    for part in parts:
        block = blocks.block_tensor(part.ref.group_id, part.block_id)
        copy_bytes(block[part.offset : part.offset + part.length], data[start : start + part.length])
        part.hash(data[start : start + part.length].cpu().numpy().data)
        start += part.length


def copy_bytes(destination: torch.Tensor, source: torch.Tensor) -> None:
    """Between [n] uint8 tensors; has been done when it returns."""
    if destination.device.type == "cpu":
        # Not torch's copy, which would start a pool of threads for each thread that calls it.
        destination.numpy()[:] = source.numpy()
        return
    destination.copy_(source)
    torch.cuda.current_stream(destination.device).synchronize()
