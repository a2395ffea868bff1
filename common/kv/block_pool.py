"""The pool of fixed-size KV blocks, as metadata: who uses a block, what it holds, which one is evicted next.

Knows nothing of requests, token ids or tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from common.errors import IntegrityError
from common.kv.block import Block, BlockList
from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEvent, CacheEventKind


class BlockPool:
    """Reference-counted, content-addressed blocks. One thread; every operation is O(1) per block.

    A block is in one of three states: used (ref_count > 0), free (in the free list; with a key it is cached until
    it is evicted), or quarantined (no user, but something outside may still write to it).

    Presence is prefix-closed: whoever uses a registered block uses the registered blocks of its whole prefix, and
    blocks are released last block first, so in the free list a block always lies before the blocks of its prefix.
    Evicting from the front therefore evicts leaves first, in order of last use. Callers keep two rules for it:
    a block is registered only after its parent, and `register` may answer with another block to use instead.
    """

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0
        self.num_blocks = num_blocks
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free = BlockList()
        for block in self._blocks:
            self._free.push_back(block)
        self._by_key: dict[BlockKey, Block] = {}
        self._quarantined: set[int] = set()
        self._events: list[CacheEvent] = []
        self.epoch = 0
        self.num_touched_blocks = 0  # those beyond were never used; any thread may read it

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be taken: empty, or cached without a user."""
        return len(self._free)

    @property
    def num_cached_blocks(self) -> int:
        """Blocks with a key, used or not."""
        return len(self._by_key)

    @property
    def num_quarantined_blocks(self) -> int:
        return len(self._quarantined)

    @property
    def num_used_blocks(self) -> int:
        return self.num_blocks - len(self._free) - len(self._quarantined)

    def ref_count(self, block_id: int) -> int:
        return self._blocks[block_id].ref_count

    def key_of(self, block_id: int) -> BlockKey | None:
        return self._blocks[block_id].key

    def lookup(self, key: BlockKey) -> int | None:
        """Id of the block that holds this prefix, or None. Takes no reference."""
        block = self._by_key.get(key)
        return None if block is None else block.block_id

    def count_free(self, block_ids: Iterable[int]) -> int:
        """How many of these blocks lie in the free list now."""
        return sum(1 for block_id in block_ids if self._blocks[block_id].ref_count == 0)

    def acquire(self, block_id: int) -> None:
        """One more user of a block that is used or cached."""
        block = self._blocks[block_id]
        if block.ref_count == 0:
            self._free.remove(block)
        block.ref_count += 1

    def allocate(self, num_blocks: int) -> list[int]:
        """Takes empty blocks, evicting cached ones as needed. The caller has checked `num_free_blocks`."""
        assert num_blocks <= len(self._free)
        block_ids = []
        for _ in range(num_blocks):
            block = self._free.pop_front()
            if block.key is not None:
                self._evict(block)
            block.ref_count = 1
            self.num_touched_blocks = max(self.num_touched_blocks, block.block_id + 1)
            block_ids.append(block.block_id)
        return block_ids

    def release(self, block_ids: Sequence[int]) -> None:
        """One user less of each block of a sequence, which is given first block first."""
        for block_id in reversed(block_ids):
            block = self._blocks[block_id]
            assert block.ref_count > 0
            block.ref_count -= 1
            if block.ref_count == 0:
                self._add_free(block)

    def quarantine(self, block_ids: Sequence[int]) -> None:
        """Takes blocks from their only user without giving them back: something may still write to them."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            assert block.ref_count == 1 and block.key is None
            block.ref_count = 0
            self._quarantined.add(block_id)

    def end_quarantine(self, block_ids: Iterable[int]) -> None:
        """Nothing can write to these blocks any more."""
        for block_id in block_ids:
            self._quarantined.remove(block_id)
            self._free.push_front(self._blocks[block_id])

    def register(self, block_id: int, key: BlockKey, num_tokens: int) -> int:
        """Names the content of a used block whose KV is computed. Returns the block that its user holds from now on.

        When another block holds the same content already, the user moves to that one and `block_id` goes back.
        """
        block = self._blocks[block_id]
        assert block.ref_count > 0 and block.key in (None, key)
        holder = self._by_key.get(key)
        if holder is None:
            block.key = key
            block.num_tokens = num_tokens
            self._by_key[key] = block
            self._events.append(CacheEvent(CacheEventKind.STORED, key, num_tokens))
            return block_id
        if holder is not block:
            self.acquire(holder.block_id)
            self.release((block_id,))
        return holder.block_id

    def clear(self) -> int:
        """Forgets every key, of used blocks too. Returns how many there were.

        `epoch` rises: who used registered blocks before must not register further ones, whose prefix is gone.
        """
        num_cleared = len(self._by_key)
        for block in self._by_key.values():
            block.key = None
            block.num_tokens = 0
        self._by_key.clear()
        self._events.append(CacheEvent(CacheEventKind.CLEARED, BlockKey(b""), 0))
        self.epoch += 1
        return num_cleared

    def drain_events(self) -> list[CacheEvent]:
        """Events since the last call, oldest first."""
        events = self._events
        self._events = []
        return events

    def check_integrity(self, used: dict[int, int]) -> None:
        """`used` is block id → number of users. Raises IntegrityError when the pool's books differ."""
        free_ids = [block.block_id for block in self._free]
        _check(len(free_ids) == len(self._free) == len(set(free_ids)), "the free list is broken")
        _check(not self._quarantined & set(free_ids), "a quarantined block is free")
        for block in self._blocks:
            expected = used.get(block.block_id, 0)
            _check(
                block.ref_count == expected,
                f"block {block.block_id} has {block.ref_count} references, its users are {expected}",
            )
            in_free_list = block.next is not None
            quarantined = block.block_id in self._quarantined
            _check(
                (block.ref_count > 0) + in_free_list + quarantined == 1,
                f"block {block.block_id} is not in exactly one state",
            )
            _check(not (quarantined and block.key is not None), f"quarantined block {block.block_id} has a key")
            _check(
                block.key is None or self._by_key.get(block.key) is block,
                f"block {block.block_id} has a key that does not lead to it",
            )
        num_keyed = sum(1 for block in self._blocks if block.key is not None)
        _check(num_keyed == len(self._by_key), "the key table holds a block that has no key")

    def _add_free(self, block: Block) -> None:
        if block.key is None:
            self._free.push_front(block)
        else:
            self._free.push_back(block)

    def _evict(self, block: Block) -> None:
        assert block.key is not None
        del self._by_key[block.key]
        self._events.append(CacheEvent(CacheEventKind.EVICTED, block.key, block.num_tokens))
        block.key = None
        block.num_tokens = 0


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise IntegrityError(message)
