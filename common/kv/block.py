"""One block of the pool as metadata, and the intrusive list that keeps unused blocks in eviction order."""

from __future__ import annotations

from collections.abc import Iterator

from common.kv.block_key import BlockKey


class Block:
    """Metadata of one physical block. Owner: BlockPool; nobody else writes to it.

    `key` and `num_tokens` (length of the prefix that ends with this block, in tokens) are set while the block is
    registered. `previous` and `next` are set while it lies in a BlockList.
    """

    __slots__ = ("block_id", "key", "next", "num_tokens", "previous", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.key: BlockKey | None = None
        self.num_tokens = 0
        self.previous: Block | None = None
        self.next: Block | None = None


class BlockList:
    """Doubly linked list through the blocks themselves: every operation is O(1)."""

    def __init__(self) -> None:
        self._head = Block(0)
        self._head.previous = self._head.next = self._head
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Block]:
        block = self._head.next
        while block is not self._head:
            assert block is not None
            yield block
            block = block.next

    def push_front(self, block: Block) -> None:
        self._insert_after(self._head, block)

    def push_back(self, block: Block) -> None:
        last = self._head.previous
        assert last is not None
        self._insert_after(last, block)

    def pop_front(self) -> Block:
        """The first block. The list must not be empty."""
        first = self._head.next
        assert first is not None and self._size > 0
        self.remove(first)
        return first

    def remove(self, block: Block) -> None:
        previous, following = block.previous, block.next
        assert previous is not None and following is not None
        previous.next = following
        following.previous = previous
        block.previous = block.next = None
        self._size -= 1

    def _insert_after(self, previous: Block, block: Block) -> None:
        following = previous.next
        assert following is not None and block.next is None
        block.previous = previous
        block.next = following
        previous.next = block
        following.previous = block
        self._size += 1
