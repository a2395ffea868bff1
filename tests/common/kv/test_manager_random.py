"""Random operations on pool and manager, with all books checked after each."""

from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.kv.block_key import BlockKey, block_keys, root_with_salt
from common.kv.block_table import BlockTable
from common.kv.cache_event import CacheEventKind
from common.kv.manager import BlockCopy, KVCacheManager
from tests.support.engine import KEY_ROOT, tiny_spec

BLOCK_SIZE = 8
NUM_BLOCKS = 12
NUM_HOST_BLOCKS = 5


@dataclass
class Holder:
    table: BlockTable
    tokens: list[int]
    num_computed: int


class ManagerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.kv = KVCacheManager(
            spec=tiny_spec(BLOCK_SIZE), num_blocks=NUM_BLOCKS, key_root=KEY_ROOT, num_host_blocks=NUM_HOST_BLOCKS
        )
        self.holders: list[Holder] = []
        self.swapped: list[Holder] = []
        self.content: dict[int, tuple[int, ...]] = {}  # block of device or host → tokens up to its KV's last
        self.quarantined: list[list[int]] = []
        self.present: dict[BlockKey, int] = {}
        self.parents: dict[BlockKey, BlockKey] = {}

    def pick(self, index: int) -> Holder:
        return self.holders[index % len(self.holders)]

    @rule(blocks=st.lists(st.integers(0, 2), min_size=1, max_size=6), tail=st.integers(0, 7), full=st.booleans())
    def begin(self, blocks: list[int], tail: int, full: bool) -> None:
        tokens = [value for block in blocks for value in [block] * BLOCK_SIZE] + [9] * tail
        keys = block_keys(root_with_salt(KEY_ROOT, b""), tokens, BLOCK_SIZE)
        self.parents.update(zip(keys[1:], keys, strict=False))
        table = self.kv.open(b"")
        free_before = self.kv.pool.num_free_blocks
        cached = self.kv.try_begin(
            table, np.array(tokens, dtype="<u4"), max_cached_tokens=len(tokens) - (0 if full else 1)
        )
        if cached is None:
            assert self.kv.pool.num_free_blocks == free_before < self.kv.num_blocks_for(len(tokens))
            return
        assert cached % BLOCK_SIZE == 0
        self.holders.append(Holder(table, tokens, cached))
        self.check_content(self.holders[-1])

    @precondition(lambda self: self.holders)
    @rule(index=st.integers(0, 99), count=st.integers(1, 20))
    def compute(self, index: int, count: int) -> None:
        holder = self.pick(index)
        end = min(len(holder.tokens), holder.num_computed + count)
        copies = self.kv.try_grow(holder.table, num_computed_tokens=holder.num_computed, num_tokens=end)
        if copies is None:
            return
        self.copy(copies)
        for logical_block in range(holder.num_computed // BLOCK_SIZE, self.kv.num_blocks_for(end)):
            if end > holder.num_computed:
                assert self.kv.pool.ref_count(holder.table.block_id(logical_block)) == 1
                self.content[holder.table.block_id(logical_block)] = tuple(
                    holder.tokens[: min(end, (logical_block + 1) * BLOCK_SIZE)]
                )
        holder.num_computed = end
        self.check_content(holder)
        self.kv.register_computed(holder.table, np.array(holder.tokens, dtype="<u4"), end)

    @precondition(lambda self: self.holders)
    @rule(index=st.integers(0, 99), token=st.integers(0, 2))
    def append(self, index: int, token: int) -> None:
        holder = self.pick(index)
        holder.tokens.append(token)
        if len(holder.tokens) % BLOCK_SIZE == 0:
            keys = block_keys(root_with_salt(KEY_ROOT, b""), holder.tokens, BLOCK_SIZE)
            self.parents.update(zip(keys[1:], keys, strict=False))

    @precondition(lambda self: self.holders)
    @rule(index=st.integers(0, 99))
    def fork(self, index: int) -> None:
        holder = self.pick(index)
        if holder.num_computed == len(holder.tokens):
            self.holders.append(Holder(self.kv.fork(holder.table), list(holder.tokens), holder.num_computed))

    @precondition(lambda self: self.holders)
    @rule(index=st.integers(0, 99))
    def swap_out(self, index: int) -> None:
        holder = self.pick(index)
        before = self.kv.host_pool.num_free_blocks
        copies = self.kv.try_swap_out(
            holder.table, np.array(holder.tokens, dtype="<u4"), num_computed_tokens=holder.num_computed
        )
        if copies is None:
            assert self.kv.host_pool.num_free_blocks == before < self.kv.num_blocks_for(holder.num_computed)
            return
        assert self.kv.host_pool.num_free_blocks == before - len(copies)
        self.copy(copies)
        self.holders.remove(holder)
        self.swapped.append(holder)

    @precondition(lambda self: self.swapped)
    @rule(index=st.integers(0, 99), spare=st.integers(0, 3))
    def swap_in(self, index: int, spare: int) -> None:
        holder = self.swapped[index % len(self.swapped)]
        free_before = self.kv.pool.num_free_blocks
        copies = self.kv.try_swap_in(
            holder.table,
            np.array(holder.tokens, dtype="<u4"),
            num_computed_tokens=holder.num_computed,
            num_spare_blocks=spare,
        )
        if copies is None:
            assert self.kv.pool.num_free_blocks == free_before < self.kv.num_blocks_for(len(holder.tokens)) + spare
            return
        assert self.kv.pool.num_free_blocks >= spare
        self.copy(copies)
        self.swapped.remove(holder)
        self.holders.append(holder)
        self.check_content(holder)

    @precondition(lambda self: self.swapped)
    @rule(index=st.integers(0, 99))
    def free_swapped(self, index: int) -> None:
        self.kv.free(self.swapped.pop(index % len(self.swapped)).table)

    def copy(self, copies: tuple[BlockCopy, ...]) -> None:
        for source, destination in copies:
            self.content[destination] = self.content[source]

    def check_content(self, holder: Holder) -> None:
        """The KV of every computed token is where the table says."""
        for logical_block in range(self.kv.num_blocks_for(holder.num_computed)):
            end = min(holder.num_computed, (logical_block + 1) * BLOCK_SIZE)
            assert self.content[holder.table.block_id(logical_block)][:end] == tuple(holder.tokens[:end])

    @precondition(lambda self: self.holders)
    @rule(index=st.integers(0, 99))
    def free(self, index: int) -> None:
        holder = self.pick(index)
        self.holders.remove(holder)
        self.kv.free(holder.table)

    @precondition(lambda self: self.holders)
    @rule(index=st.integers(0, 99))
    def quarantine(self, index: int) -> None:
        holder = self.pick(index)
        first = holder.table.num_registered
        block_ids = holder.table.block_ids.tolist()
        own = all(self.kv.pool.ref_count(b) == 1 and self.kv.pool.key_of(b) is None for b in block_ids[first:])
        if own:
            self.holders.remove(holder)
            self.quarantined.append(self.kv.quarantine(holder.table, first))

    @precondition(lambda self: self.quarantined)
    @rule()
    def end_quarantine(self) -> None:
        self.kv.pool.end_quarantine(self.quarantined.pop())

    @rule()
    def clear(self) -> None:
        self.kv.pool.clear()

    @invariant()
    def books_agree(self) -> None:
        self.kv.check_integrity()
        assert self.kv.pool.num_quarantined_blocks == sum(map(len, self.quarantined))

    @invariant()
    def presence_is_prefix_closed_after_each_event(self) -> None:
        for kind, key, num_tokens in self.kv.pool.drain_events():
            if kind is CacheEventKind.CLEARED:
                self.present.clear()
            elif kind is CacheEventKind.STORED:
                assert num_tokens == BLOCK_SIZE or self.present[self.parents[key]] == num_tokens - BLOCK_SIZE
                self.present[key] = num_tokens
            else:
                assert self.present.pop(key) == num_tokens
                assert all(self.parents.get(other) != key for other in self.present)
        assert len(self.present) == self.kv.pool.num_cached_blocks

    def teardown(self) -> None:
        for holder in (*self.holders, *self.swapped):
            self.kv.free(holder.table)
        for block_ids in self.quarantined:
            self.kv.pool.end_quarantine(block_ids)
        self.kv.check_integrity()
        assert self.kv.pool.num_free_blocks == NUM_BLOCKS
        assert self.kv.host_pool.num_free_blocks == NUM_HOST_BLOCKS


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
