"""The tensors of the KV pools. Knows bytes and strides; which block means what is the manager's business."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch

from common.attention.layer_kv_cache import LayerKVCache
from common.kernels.cpu.copy import Copier
from common.kernels.cpu.huge_pages import huge_buffer
from common.kernels.dtypes import TORCH_DTYPES
from common.kv.manager import BlockCopy
from common.kv.spec import KVCacheSpec


class KVCache:
    """One tensor per group, block-major: [num_blocks, num_layers, 2, num_kv_heads, block_size, head_dim].

    A block is one contiguous slab. Written by the engine thread; a transfer writes only to blocks that it was given
    and reads only blocks that are leased to it. On a CPU pages are committed as they are first written.

    Block ids from `num_blocks` on are those of the host pool, `num_host_blocks` of them, always in the CPU's memory.
    """

    def __init__(self, *, spec: KVCacheSpec, num_blocks: int, device: torch.device, num_host_blocks: int = 0) -> None:
        spec.check_supported()
        self.spec = spec
        self.num_blocks = num_blocks
        self.device = device
        self._copier = Copier.load() if device.type == "cpu" else None
        # [num_blocks, bytes_per_block] uint8 per group; zeros, since a masked NaN would still poison attention
        self._bytes = [_zeros(num_blocks, group.bytes_per_block, device) for group in spec.groups]
        self._host_bytes = [
            _zeros(num_host_blocks, group.bytes_per_block, torch.device("cpu")) for group in spec.groups
        ]
        self._layers: dict[int, LayerKVCache] = {}
        for group, raw in zip(spec.groups, self._bytes, strict=True):
            slabs = raw.view(TORCH_DTYPES[group.dtype]).view(num_blocks, *group.block_shape)
            for index, layer in enumerate(group.layers):
                self._layers[layer] = LayerKVCache(key=slabs[:, index, 0], value=slabs[:, index, 1])

    def layer(self, layer: int) -> LayerKVCache:
        """Keys and values of a layer, strided views [num_blocks, num_kv_heads, block_size, head_dim]."""
        return self._layers[layer]

    def block_bytes(self, group_id: int, block_id: int) -> npt.NDArray[np.uint8]:
        """[bytes_per_block] uint8: a view on the CPU (write to it to write the block), a copy from other devices."""
        array: npt.NDArray[np.uint8] = self._slab(group_id, block_id).cpu().numpy()
        return array

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """All memory that blocks lie in: [any number of blocks, bytes_per_block] uint8 each."""
        return tuple(raw for raw in (*self._bytes, *self._host_bytes) if raw.numel())

    @property
    def device_tensors(self) -> tuple[torch.Tensor, ...]:
        """Those of the pool alone: [num_blocks, bytes_per_block] uint8, one per group."""
        return tuple(self._bytes)

    def block_tensor(self, group_id: int, block_id: int) -> torch.Tensor:
        """[bytes_per_block] uint8: a view, on the device or, of a block of the host pool, on the CPU."""
        return self._slab(group_id, block_id)

    def write_block_bytes(
        self, group_id: int, block_id: int, data: bytes | memoryview | npt.NDArray[np.uint8], offset: int = 0
    ) -> None:
        """Writes bytes into a block of the device from `offset` (bytes) on."""
        source = np.frombuffer(data, dtype=np.uint8)
        bytes_per_block = self.spec.groups[group_id].bytes_per_block
        assert 0 <= block_id < self.num_blocks and 0 <= offset <= bytes_per_block - len(source)
        if self._copier is not None:
            self._copier.copy_past_cache(source, self._bytes[group_id], block_id * bytes_per_block + offset)
        else:
            self._bytes[group_id][block_id, offset : offset + len(source)] = torch.from_numpy(source.copy()).to(
                self.device
            )

    def copy_blocks(self, copies: Iterable[BlockCopy]) -> None:
        """Makes the copies one after the other, in every group, between device and host as the ids say."""
        for source, destination in copies:
            for group_id in range(len(self._bytes)):
                self._slab(group_id, destination).copy_(self._slab(group_id, source))

    def _slab(self, group_id: int, block_id: int) -> torch.Tensor:
        """[bytes_per_block] uint8, a view."""
        if block_id < self.num_blocks:
            return self._bytes[group_id][block_id]
        return self._host_bytes[group_id][block_id - self.num_blocks]


def _zeros(num_blocks: int, bytes_per_block: int, device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return huge_buffer(num_blocks * bytes_per_block).view(num_blocks, bytes_per_block)
    return torch.zeros((num_blocks, bytes_per_block), dtype=torch.uint8, device=device)
