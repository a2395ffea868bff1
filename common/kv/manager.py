"""Block tables of sequences over one block pool: prefix reuse, growth, copy-on-write, forks, registration, swap.

Knows token ids and positions, but neither requests nor tensors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.errors import IntegrityError
from common.kv.block_key import BlockKey, child_key, root_with_salt
from common.kv.block_pool import BlockPool
from common.kv.block_table import BlockTable
from common.kv.host_pool import HostPool
from common.kv.spec import KVCacheSpec

TokenArray = npt.NDArray[np.uint32]  # [num_tokens], little-endian


class BlockCopy(NamedTuple):
    """Contents to copy before the next write: block `source` to block `destination`, in every group.

    Ids from the pool's `num_blocks` on are blocks of the host pool.
    """

    source: int
    destination: int


class KVCacheManager:
    """Owner of the pools and of every block table. One thread.

    All groups are `full` with one block size, so they are always allocated together: a block id means the block
    of that id in each group, and one table serves all groups. `key_root` is the root of block keys without salts.
    A table lies on the device or, swapped out, on the host, never in both.
    """

    def __init__(self, *, spec: KVCacheSpec, num_blocks: int, key_root: bytes, num_host_blocks: int = 0) -> None:
        spec.check_supported()
        self.spec = spec
        self.block_size = spec.block_size
        self.key_root = key_root
        self.pool = BlockPool(num_blocks)
        self.host_pool = HostPool(first_id=num_blocks, num_blocks=num_host_blocks)
        self._tables: set[BlockTable] = set()

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def open(self, cache_salt: bytes) -> BlockTable:
        """An empty table of a sequence whose keys carry this salt."""
        return BlockTable(root_with_salt(self.key_root, cache_salt), self.pool.epoch)

    def try_begin(
        self, table: BlockTable, token_ids: TokenArray, *, max_cached_tokens: int, num_spare_blocks: int = 0
    ) -> int | None:
        """Fills an empty table with blocks for all of `token_ids`: the cached prefix, then empty blocks.

        At most `max_cached_tokens` tokens are reused, whole blocks only. Returns how many tokens are; None when the
        blocks are not there with `num_spare_blocks` left over, and then nothing has changed.
        """
        assert table.num_blocks == 0
        cached_ids = self._find_prefix(table, token_ids, max_cached_tokens)
        num_new_blocks = self.num_blocks_for(len(token_ids)) - len(cached_ids)
        num_free_blocks = self.pool.num_free_blocks - self.pool.count_free(cached_ids)
        if num_new_blocks + num_spare_blocks > num_free_blocks:
            return None
        for block_id in cached_ids:
            self.pool.acquire(block_id)
        table.epoch = self.pool.epoch
        table.append(cached_ids)
        table.append(self.pool.allocate(num_new_blocks))
        table.num_registered = len(cached_ids)
        self._tables.add(table)
        return len(cached_ids) * self.block_size

    def count_cached_tokens(self, table: BlockTable, token_ids: TokenArray) -> int:
        """Leading tokens whose full blocks are cached now. Pins nothing."""
        return len(self._find_prefix(table, token_ids, len(token_ids))) * self.block_size

    def count_idle_cached_blocks(self, table: BlockTable, token_ids: TokenArray) -> int:
        """Of the leading cached blocks, those that nobody uses: `try_begin` takes them from the free ones too."""
        return self.pool.count_free(self._find_prefix(table, token_ids, len(token_ids)))

    def count_own_blocks(self, table: BlockTable) -> int:
        """Blocks that come free with the table, since nobody shares them."""
        return sum(1 for block_id in table.block_ids.tolist() if self.pool.ref_count(block_id) == 1)

    def try_grow(self, table: BlockTable, *, num_computed_tokens: int, num_tokens: int) -> tuple[BlockCopy, ...] | None:
        """Makes room for `num_tokens` tokens, of which those from `num_computed_tokens` on will be written.

        Returns the copies to make before that write (a shared or registered block is never written); None when there
        is no room, and then nothing has changed.
        """
        num_new_blocks = max(0, self.num_blocks_for(num_tokens) - table.num_blocks)
        first_written = num_computed_tokens // self.block_size
        shared = [
            logical_block
            for logical_block in range(first_written, table.num_blocks)
            if logical_block < table.num_registered or self.pool.ref_count(table.block_id(logical_block)) > 1
        ]
        if num_new_blocks + len(shared) > self.pool.num_free_blocks:
            return None
        copies = tuple(self._copy_on_write(table, logical_block) for logical_block in shared)
        if num_new_blocks:
            table.append(self.pool.allocate(num_new_blocks))
            self._tables.add(table)
        return copies

    def register_computed(self, table: BlockTable, token_ids: TokenArray, num_computed_tokens: int) -> None:
        """Registers the blocks that the first `num_computed_tokens` tokens fill. Their KV is in the cache.

        A block whose content another block holds already is exchanged for that one.
        """
        num_full_blocks = num_computed_tokens // self.block_size
        if num_full_blocks <= table.num_registered or table.epoch != self.pool.epoch:
            return
        for logical_block in range(table.num_registered, num_full_blocks):
            key = self._key(table, token_ids, logical_block)
            block_id = table.block_id(logical_block)
            kept_id = self.pool.register(block_id, key, (logical_block + 1) * self.block_size)
            if kept_id != block_id:
                table.replace(logical_block, kept_id)
        table.num_registered = num_full_blocks

    def try_swap_out(
        self,
        table: BlockTable,
        token_ids: TokenArray,
        *,
        num_computed_tokens: int,
        contents: Mapping[int, int] = MappingProxyType({}),
    ) -> tuple[BlockCopy, ...] | None:
        """Moves the table to the host, with the KV of its first `num_computed_tokens` tokens.

        Returns the copies to make before anything is written to a device block, for those are free at once; None when
        the host has no room, and then nothing has changed. `contents` says of blocks that were to be filled by a copy
        which will not be made where their content lies.
        """
        num_full_blocks = num_computed_tokens // self.block_size
        keys: list[BlockKey | None] = [self._key(table, token_ids, index) for index in range(num_full_blocks)]
        keys += [None] * (self.num_blocks_for(num_computed_tokens) - num_full_blocks)
        host_blocks = self.host_pool.try_take(keys)
        if host_blocks is None:
            return None
        block_ids: list[int] = table.block_ids.tolist()
        copies = tuple(
            BlockCopy(contents.get(block_id, block_id), host_block.block_id)
            for block_id, host_block in zip(block_ids, host_blocks, strict=False)
            if not host_block.present
        )
        self.free(table)
        table.append([host_block.block_id for host_block in host_blocks])
        table.on_host = True
        self._tables.add(table)
        return copies

    def try_swap_in(
        self, table: BlockTable, token_ids: TokenArray, *, num_computed_tokens: int, num_spare_blocks: int
    ) -> tuple[BlockCopy, ...] | None:
        """Brings a table back from the host, with room for all of `token_ids`: prefix blocks that the device still
        caches, then copies.

        Returns the copies to make before the next write; None when the blocks are not there with `num_spare_blocks`
        left over, and then nothing has changed.
        """
        assert table.on_host
        host_ids: list[int] = table.block_ids.tolist()
        table.clear()
        cached_tokens = self.try_begin(
            table, token_ids, max_cached_tokens=num_computed_tokens, num_spare_blocks=num_spare_blocks
        )
        if cached_tokens is None:
            table.append(host_ids)
            table.on_host = True
            return None
        first = cached_tokens // self.block_size
        copies = tuple(
            BlockCopy(host_id, table.block_id(logical_block))
            for logical_block, host_id in enumerate(host_ids[first:], first)
        )
        self.host_pool.release(host_ids)
        return copies

    def fork(self, table: BlockTable) -> BlockTable:
        """Another table over the same blocks. Whoever writes to a shared block first gets a copy of it."""
        assert not table.on_host
        child = BlockTable(table.root, table.epoch)
        child.keys = list(table.keys)
        child.append(table.block_ids.tolist())
        child.num_registered = table.num_registered
        for block_id in child.block_ids.tolist():
            self.pool.acquire(block_id)
        self._tables.add(child)
        return child

    def free(self, table: BlockTable) -> None:
        """Gives the blocks back; registered ones stay cached. The table may be begun anew. Idempotent."""
        pool = self.host_pool if table.on_host else self.pool
        pool.release(table.block_ids.tolist())
        table.clear()
        self._tables.discard(table)

    def quarantine(self, table: BlockTable, first_logical_block: int) -> list[int]:
        """Like `free`, but blocks from `first_logical_block` on are quarantined. Returns those.

        None of them may be registered or shared.
        """
        block_ids: list[int] = table.block_ids.tolist()
        self.pool.quarantine(block_ids[first_logical_block:])
        self.pool.release(block_ids[:first_logical_block])
        table.clear()
        self._tables.discard(table)
        return block_ids[first_logical_block:]

    def check_integrity(self) -> None:
        """Raises IntegrityError when tables and pool disagree."""
        users: Counter[int] = Counter()
        host_users: Counter[int] = Counter()
        for table in self._tables:
            (host_users if table.on_host else users).update(table.block_ids.tolist())
            self._check_registered(table)
        self.pool.check_integrity(dict(users))
        self.host_pool.check_integrity(host_users)

    def _find_prefix(self, table: BlockTable, token_ids: TokenArray, max_cached_tokens: int) -> list[int]:
        num_blocks = min(max_cached_tokens, len(token_ids)) // self.block_size
        block_ids: list[int] = []
        for logical_block in range(num_blocks):
            block_id = self.pool.lookup(self._key(table, token_ids, logical_block))
            if block_id is None:
                break
            block_ids.append(block_id)
        return block_ids

    def _key(self, table: BlockTable, token_ids: TokenArray, logical_block: int) -> BlockKey:
        """The key of a full block; keys before it are there already."""
        if logical_block < len(table.keys):
            return table.keys[logical_block]
        assert logical_block == len(table.keys)
        start = logical_block * self.block_size
        parent = table.keys[-1] if table.keys else table.root
        key = child_key(parent, token_ids[start : start + self.block_size].tobytes())
        table.keys.append(key)
        return key

    def _copy_on_write(self, table: BlockTable, logical_block: int) -> BlockCopy:
        shared_id = table.block_id(logical_block)
        (own_id,) = self.pool.allocate(1)
        table.replace(logical_block, own_id)
        table.num_registered = min(table.num_registered, logical_block)
        self.pool.release((shared_id,))
        return BlockCopy(shared_id, own_id)

    def _check_registered(self, table: BlockTable) -> None:
        if table.epoch != self.pool.epoch:
            return
        for logical_block in range(table.num_registered):
            if self.pool.key_of(table.block_id(logical_block)) != table.keys[logical_block]:
                raise IntegrityError(f"logical block {logical_block} of a table is not registered under its key")
