import pytest

from common.errors import IntegrityError
from common.kv.block_key import BlockKey
from common.kv.host_pool import HostPool

KEYS = [BlockKey(bytes([index]) * 16) for index in range(4)]


def take(pool: HostPool, *keys: BlockKey | None) -> list[tuple[int, bool]]:
    blocks = pool.try_take(keys)
    assert blocks is not None
    return [(block.block_id, block.present) for block in blocks]


def test_ids_begin_where_the_devices_end() -> None:
    pool = HostPool(first_id=100, num_blocks=3)
    assert take(pool, KEYS[0], KEYS[1], None) == [(100, False), (101, False), (102, False)]
    pool.check_integrity({100: 1, 101: 1, 102: 1})


def test_a_prefix_that_another_holds_is_shared_and_a_block_that_is_not_full_never() -> None:
    pool = HostPool(first_id=10, num_blocks=4)
    take(pool, KEYS[0], None)
    assert take(pool, KEYS[0], KEYS[1], None) == [(10, True), (12, False), (13, False)]
    pool.check_integrity({10: 2, 11: 1, 12: 1, 13: 1})
    pool.release([10, 11])
    assert pool.num_free_blocks == 1
    pool.check_integrity({10: 1, 12: 1, 13: 1})


def test_without_room_nothing_changes() -> None:
    pool = HostPool(first_id=10, num_blocks=2)
    take(pool, KEYS[0])
    assert pool.try_take([KEYS[0], KEYS[1], None]) is None
    pool.check_integrity({10: 1})
    assert pool.try_take([KEYS[0], KEYS[1]]) is not None


def test_with_its_last_user_a_block_is_forgotten() -> None:
    pool = HostPool(first_id=10, num_blocks=2)
    take(pool, KEYS[0])
    pool.release([10])
    assert pool.num_free_blocks == 2
    assert take(pool, KEYS[0]) == [(10, False)]


def test_an_empty_pool_takes_nothing() -> None:
    pool = HostPool(first_id=10, num_blocks=0)
    assert pool.try_take([KEYS[0]]) is None
    assert pool.try_take([]) == []
    pool.check_integrity({})


def test_books_that_differ_are_found() -> None:
    pool = HostPool(first_id=10, num_blocks=2)
    take(pool, KEYS[0])
    with pytest.raises(IntegrityError):
        pool.check_integrity({})
    with pytest.raises(IntegrityError):
        pool.check_integrity({10: 2})
    pool._free.append(10)
    with pytest.raises(IntegrityError):
        pool.check_integrity({10: 1})
