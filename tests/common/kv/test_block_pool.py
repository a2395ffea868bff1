import pytest

from common.errors import IntegrityError
from common.kv.block_key import BlockKey
from common.kv.block_pool import BlockPool
from common.kv.cache_event import CacheEventKind


def key(name: str) -> BlockKey:
    return BlockKey(name.encode().ljust(16, b"\0"))


def store(pool: BlockPool, *names: str) -> list[int]:
    """Blocks of a chain, registered and in use; prefixes that exist are shared."""
    block_ids = []
    for index, name in enumerate(names):
        (block_id,) = pool.allocate(1)
        block_ids.append(pool.register(block_id, key(name), (index + 1) * 16))
    return block_ids


def test_released_blocks_stay_cached_until_they_are_evicted() -> None:
    pool = BlockPool(4)
    block_ids = store(pool, "a", "b")
    pool.release(block_ids)
    assert pool.num_free_blocks == 4
    assert pool.num_cached_blocks == 2
    assert pool.lookup(key("b")) == block_ids[1]
    pool.allocate(3)
    assert pool.lookup(key("b")) is None
    assert pool.lookup(key("a")) == block_ids[0]


def test_leaves_are_evicted_before_their_prefix() -> None:
    pool = BlockPool(3)
    pool.release(store(pool, "a", "ab", "abc"))
    pool.drain_events()
    pool.allocate(3)
    evicted = [(event.key, event.num_tokens) for event in pool.drain_events()]
    assert evicted == [(key("abc"), 48), (key("ab"), 32), (key("a"), 16)]


def test_the_least_recently_used_is_evicted_first() -> None:
    pool = BlockPool(3)
    blocks = {name: store(pool, name) for name in "abc"}
    for name in "abc":
        pool.release(blocks[name])
    pool.acquire(blocks["a"][0])
    pool.release(blocks["a"])
    pool.allocate(1)
    assert pool.lookup(key("b")) is None
    assert pool.lookup(key("a")) is not None


def test_empty_blocks_are_taken_before_cached_ones() -> None:
    pool = BlockPool(2)
    cached = store(pool, "a")
    pool.release(cached)
    pool.release(pool.allocate(1))
    pool.allocate(1)
    assert pool.lookup(key("a")) == cached[0]


def test_registering_known_content_moves_the_user_to_the_block_that_holds_it() -> None:
    pool = BlockPool(4)
    (first,) = store(pool, "a")
    (duplicate,) = pool.allocate(1)
    assert pool.register(duplicate, key("a"), 16) == first
    assert pool.ref_count(first) == 2
    assert pool.ref_count(duplicate) == 0
    pool.check_integrity({first: 2})


def test_quarantined_blocks_are_neither_free_nor_used() -> None:
    pool = BlockPool(4)
    block_ids = pool.allocate(2)
    pool.quarantine(block_ids)
    assert (pool.num_free_blocks, pool.num_used_blocks, pool.num_quarantined_blocks) == (2, 0, 2)
    pool.check_integrity({})
    pool.end_quarantine(block_ids)
    assert pool.num_free_blocks == 4


def test_clear_forgets_used_blocks_too() -> None:
    pool = BlockPool(4)
    used = store(pool, "a")
    pool.release(store(pool, "b"))
    pool.drain_events()
    assert pool.clear() == 2
    assert pool.lookup(key("a")) is None
    assert [event.kind for event in pool.drain_events()] == [CacheEventKind.CLEARED]
    pool.release(used)
    assert pool.num_free_blocks == 4


def test_events_tell_what_was_stored_and_evicted_in_order() -> None:
    pool = BlockPool(1)
    pool.release(store(pool, "a"))
    store(pool, "b")
    assert [(event.kind, event.key) for event in pool.drain_events()] == [
        (CacheEventKind.STORED, key("a")),
        (CacheEventKind.EVICTED, key("a")),
        (CacheEventKind.STORED, key("b")),
    ]
    assert pool.drain_events() == []


def test_integrity_finds_a_lost_reference() -> None:
    pool = BlockPool(2)
    (block_id,) = pool.allocate(1)
    with pytest.raises(IntegrityError, match="references"):
        pool.check_integrity({})
    with pytest.raises(IntegrityError, match="references"):
        pool.check_integrity({block_id: 2})
