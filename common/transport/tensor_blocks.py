"""Blocks as tensors, for transports that move device memory."""

from __future__ import annotations

from typing import Protocol

import torch

from common.kv.sender import BlockWriter


class TensorBlocks(BlockWriter, Protocol):
    @property
    def device(self) -> torch.device: ...

    def block_tensor(self, group_id: int, block_id: int) -> torch.Tensor:
        """[bytes_per_block] uint8: a view of the pool, on its device."""
        ...


def copy_bytes(destination: torch.Tensor, source: torch.Tensor) -> None:
    """Between [n] uint8 tensors of one device; has been done when it returns."""
    if destination.device.type == "cpu":
        # Not torch's copy, which would start a pool of threads for each thread that calls it.
        destination.numpy()[:] = source.numpy()
        return
    destination.copy_(source)
    torch.cuda.current_stream(destination.device).synchronize()
