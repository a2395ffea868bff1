"""The block table of one sequence: logical block → physical block, and how far its blocks are registered."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from common.kv.block_key import BlockKey

INITIAL_CAPACITY = 8


class BlockTable:
    """Owner: KVCacheManager; others read `block_ids` and `num_blocks` only.

    The first `num_registered` blocks carry their keys in the pool; `keys` may know more (a prefix looked up).
    `epoch` is the pool's when the table was made: after a cache reset an older table registers nothing more.
    With `on_host` all its blocks are the host pool's.
    """

    __slots__ = ("_ids", "epoch", "keys", "num_blocks", "num_registered", "on_host", "root")

    def __init__(self, root: BlockKey, epoch: int) -> None:
        self.root = root
        self.epoch = epoch
        self.keys: list[BlockKey] = []
        self.num_registered = 0
        self.num_blocks = 0
        self.on_host = False
        self._ids: npt.NDArray[np.int32] = np.zeros(INITIAL_CAPACITY, dtype=np.int32)

    @property
    def block_ids(self) -> npt.NDArray[np.int32]:
        """[num_blocks] int32, a view that is valid until the table grows."""
        return self._ids[: self.num_blocks]

    def block_id(self, logical_block: int) -> int:
        return int(self._ids[logical_block])

    def append(self, block_ids: list[int]) -> None:
        needed = self.num_blocks + len(block_ids)
        if needed > len(self._ids):
            grown = np.zeros(max(needed, 2 * len(self._ids)), dtype=np.int32)
            grown[: self.num_blocks] = self.block_ids
            self._ids = grown
        self._ids[self.num_blocks : needed] = block_ids
        self.num_blocks = needed

    def replace(self, logical_block: int, block_id: int) -> None:
        self._ids[logical_block] = block_id

    def clear(self) -> None:
        self.num_blocks = 0
        self.num_registered = 0
        self.on_host = False
