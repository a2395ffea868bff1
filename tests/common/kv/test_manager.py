import numpy as np

from common.kv.block_key import block_keys, root_with_salt
from common.kv.block_table import BlockTable
from common.kv.cache_event import CacheEventKind
from common.kv.manager import KVCacheManager, TokenArray
from tests.support.engine import KEY_ROOT, tiny_spec

BLOCK_SIZE = 8


def make_manager(num_blocks: int = 16) -> KVCacheManager:
    return KVCacheManager(spec=tiny_spec(BLOCK_SIZE), num_blocks=num_blocks, key_root=KEY_ROOT)


def tokens(count: int, first: int = 0) -> TokenArray:
    return np.arange(first, first + count, dtype="<u4")


def begin(kv: KVCacheManager, token_ids: TokenArray, salt: bytes = b"", *, computed: bool = True) -> BlockTable:
    table = kv.open(salt)
    assert kv.try_begin(table, token_ids, max_cached_tokens=len(token_ids)) is not None
    if computed:
        kv.register_computed(table, token_ids, len(token_ids))
    return table


def test_blocks_are_cached_only_once_computed() -> None:
    kv = make_manager()
    table = begin(kv, tokens(20), computed=False)
    other = kv.open(b"")
    assert kv.try_begin(other, tokens(20), max_cached_tokens=20) == 0
    kv.register_computed(table, tokens(20), 15)
    third = kv.open(b"")
    assert kv.try_begin(third, tokens(20), max_cached_tokens=20) == 8
    kv.check_integrity()


def test_keys_are_those_that_routers_compute() -> None:
    kv = make_manager()
    begin(kv, tokens(24), b"salt")
    expected = block_keys(root_with_salt(KEY_ROOT, b"salt"), tokens(24), BLOCK_SIZE)
    assert [event.key for event in kv.pool.drain_events()] == expected


def test_a_prefix_is_shared_up_to_the_limit_in_whole_blocks() -> None:
    kv = make_manager()
    first = begin(kv, tokens(24))
    second = kv.open(b"")
    assert kv.try_begin(second, tokens(24), max_cached_tokens=23) == 16
    assert second.block_ids[:2].tolist() == first.block_ids[:2].tolist()
    assert second.block_ids[2] != first.block_ids[2]


def test_computing_known_content_again_ends_with_the_one_block() -> None:
    kv = make_manager()
    first = begin(kv, tokens(24))
    second = kv.open(b"")
    kv.try_begin(second, tokens(24), max_cached_tokens=23)
    kv.register_computed(second, tokens(24), 24)
    assert second.block_ids.tolist() == first.block_ids.tolist()
    kv.check_integrity()
    kv.free(first)
    kv.free(second)
    assert kv.pool.num_free_blocks == 16


def test_other_salts_share_nothing() -> None:
    kv = make_manager()
    begin(kv, tokens(16), b"one")
    table = kv.open(b"two")
    assert kv.try_begin(table, tokens(16), max_cached_tokens=16) == 0


def test_no_room_changes_nothing() -> None:
    kv = make_manager(num_blocks=4)
    kv.free(begin(kv, tokens(16)))
    table = kv.open(b"")
    assert kv.try_begin(table, tokens(40), max_cached_tokens=40) is None
    assert kv.try_begin(table, tokens(32), max_cached_tokens=32, num_spare_blocks=1) is None
    assert kv.pool.num_free_blocks == 4
    assert kv.pool.num_cached_blocks == 2
    assert kv.try_begin(table, tokens(32), max_cached_tokens=32) == 16
    assert kv.try_grow(table, num_computed_tokens=32, num_tokens=33) is None
    kv.check_integrity()


def test_a_fork_copies_the_partial_block_on_write() -> None:
    kv = make_manager()
    parent = begin(kv, tokens(12))
    child = kv.fork(parent)
    assert child.block_ids.tolist() == parent.block_ids.tolist()
    copies = kv.try_grow(child, num_computed_tokens=12, num_tokens=13)
    assert copies == ((parent.block_id(1), child.block_id(1)),)
    assert child.block_id(0) == parent.block_id(0)
    assert kv.try_grow(parent, num_computed_tokens=12, num_tokens=13) == ()
    kv.check_integrity()


def test_the_last_holder_writes_without_a_copy() -> None:
    kv = make_manager()
    parent = begin(kv, tokens(12))
    child = kv.fork(parent)
    kv.free(parent)
    assert kv.try_grow(child, num_computed_tokens=12, num_tokens=13) == ()


def test_a_registered_block_is_copied_even_for_its_last_holder() -> None:
    kv = make_manager()
    table = begin(kv, tokens(16))
    shared = table.block_id(1)
    assert kv.try_grow(table, num_computed_tokens=15, num_tokens=16) == ((shared, table.block_id(1)),)
    assert table.num_registered == 1
    kv.check_integrity()
    kv.register_computed(table, tokens(16), 16)
    assert table.block_id(1) == shared
    kv.check_integrity()


def test_forks_at_a_block_boundary_need_no_copy() -> None:
    kv = make_manager()
    child = kv.fork(begin(kv, tokens(16)))
    assert kv.try_grow(child, num_computed_tokens=16, num_tokens=17) == ()
    assert child.num_blocks == 3


def test_quarantine_keeps_what_was_to_be_written_and_frees_the_rest() -> None:
    kv = make_manager()
    kv.free(begin(kv, tokens(16)))
    table = kv.open(b"")
    assert kv.try_begin(table, tokens(40), max_cached_tokens=40) == 16
    held = kv.quarantine(table, 2)
    assert len(held) == 3
    assert kv.pool.num_free_blocks == 13
    kv.check_integrity()
    kv.pool.end_quarantine(held)
    assert kv.pool.num_free_blocks == 16


def test_after_a_reset_running_sequences_register_nothing_that_has_no_prefix() -> None:
    kv = make_manager()
    table = begin(kv, tokens(16))
    kv.pool.clear()
    kv.pool.drain_events()
    kv.try_grow(table, num_computed_tokens=16, num_tokens=24)
    kv.register_computed(table, tokens(24), 24)
    assert kv.pool.drain_events() == []
    kv.free(table)
    begin(kv, tokens(16))
    assert {event.kind for event in kv.pool.drain_events()} == {CacheEventKind.STORED}
    kv.check_integrity()


def test_a_table_grows_past_its_first_capacity() -> None:
    kv = make_manager(num_blocks=64)
    table = begin(kv, tokens(8))
    for end in range(16, 8 * 60, 8):
        assert kv.try_grow(table, num_computed_tokens=end - 8, num_tokens=end) == ()
    assert len(set(table.block_ids.tolist())) == table.num_blocks == 59
