"""Blocks in host memory, as metadata: where the KV of sequences waits that had to give way on the device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from common.errors import IntegrityError
from common.kv.block_key import BlockKey


class HostBlock(NamedTuple):
    """`present` says that the block holds its content already: another sequence's copy of the same prefix."""

    block_id: int
    present: bool


class HostPool:
    """Reference-counted blocks with ids from `first_id` on, so that one number names a block wherever it lies.

    A block with a key is shared by all whose prefix it holds. Nothing is cached: with its last user a block is free.
    One thread.
    """

    def __init__(self, *, first_id: int, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._first_id = first_id
        self._free = list(range(first_id + num_blocks - 1, first_id - 1, -1))
        self._users: Counter[int] = Counter()
        self._by_key: dict[BlockKey, int] = {}
        self._keys: dict[int, BlockKey] = {}

    @property
    def num_free_blocks(self) -> int:
        return len(self._free)

    def try_take(self, keys: Sequence[BlockKey | None]) -> list[HostBlock] | None:
        """A block for each key, None for a block that is not full. None when there is no room, and then nothing has
        changed."""
        num_new_blocks = sum(1 for key in keys if key is None or key not in self._by_key)
        if num_new_blocks > len(self._free):
            return None
        return [self._take(key) for key in keys]

    def release(self, block_ids: Iterable[int]) -> None:
        """One user less of each block."""
        for block_id in block_ids:
            assert self._users[block_id] > 0
            self._users[block_id] -= 1
            if not self._users[block_id]:
                del self._users[block_id]
                key = self._keys.pop(block_id, None)
                if key is not None:
                    del self._by_key[key]
                self._free.append(block_id)

    def check_integrity(self, used: Mapping[int, int]) -> None:
        """`used` is block id → number of users. Raises IntegrityError when the pool's books differ."""
        if dict(self._users) != dict(used):
            raise IntegrityError("host blocks have other users than their tables say")
        every = sorted([*self._free, *self._users])
        if every != list(range(self._first_id, self._first_id + self.num_blocks)):
            raise IntegrityError("a host block is lost, or both free and used")
        by_key = {key: block_id for block_id, key in self._keys.items()}
        if by_key != self._by_key or not self._keys.keys() <= used.keys():
            raise IntegrityError("the key table of the host pool is broken")

    def _take(self, key: BlockKey | None) -> HostBlock:
        block_id = None if key is None else self._by_key.get(key)
        present = block_id is not None
        if block_id is None:
            block_id = self._free.pop()
            if key is not None:
                self._by_key[key] = block_id
                self._keys[block_id] = key
        self._users[block_id] += 1
        return HostBlock(block_id, present)
