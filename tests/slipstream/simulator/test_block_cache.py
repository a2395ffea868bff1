from __future__ import annotations

import random

from slipstream.simulator.block_cache import BlockCache


def put(cache: BlockCache, keys: list[int]) -> int | None:
    """A prompt that is computed and released."""
    num_held = cache.try_take(keys, 0)
    if num_held is not None:
        cache.store(keys[num_held:])
        cache.release(keys, 0)
    return num_held


def test_a_prompt_finds_the_leading_blocks_that_are_held() -> None:
    cache = BlockCache(10)
    assert put(cache, [1, 2, 3]) == 0
    assert put(cache, [1, 2, 4]) == 2
    assert put(cache, [5, 2]) == 0
    assert cache.changes == [1, 2, 3, 4, 5]


def test_the_prompt_used_longest_ago_goes_first_and_its_end_before_its_start() -> None:
    cache = BlockCache(4)
    put(cache, [1, 2])
    put(cache, [3, 4])
    put(cache, [5])
    assert set(cache) == {1, 3, 4, 5}
    put(cache, [1])
    put(cache, [6])
    assert set(cache) == {1, 3, 5, 6}
    cache.check_integrity()


def test_blocks_in_use_are_neither_evicted_nor_given_away() -> None:
    cache = BlockCache(4)
    assert cache.try_take([1, 2, 3], 0) == 0
    assert put(cache, [4, 5]) is None
    assert cache.num_free == 1
    cache.store([1, 2, 3])
    assert put(cache, [1, 2, 3, 4]) == 3
    assert cache.num_free == 1
    cache.release([1, 2, 3], 0)
    assert (cache.num_free, cache.num_cached) == (4, 4)


def test_a_held_block_counts_as_room_only_once() -> None:
    cache = BlockCache(3)
    put(cache, [1, 2])
    # The two are held, but there is room for one more block only.
    assert cache.try_take([1, 2, 3], 1) is None
    assert cache.try_take([1, 2, 3], 0) == 2


def test_a_block_that_two_compute_is_held_once() -> None:
    cache = BlockCache(4)
    for _ in range(2):
        cache.try_take([1, 2], 0)
    for _ in range(2):
        cache.store([1, 2])
    assert cache.num_free == 2
    for _ in range(2):
        cache.release([1, 2], 0)
    assert (cache.num_free, cache.num_cached, cache.changes) == (4, 2, [1, 2])


def test_random_use_keeps_the_books() -> None:
    draw = random.Random(1)
    cache = BlockCache(30)
    prompts = [[number, *(100 * number + index for index in range(draw.randrange(8)))] for number in range(12)]
    running: list[tuple[list[int], int, int]] = []
    for _ in range(3000):
        if running and draw.random() < 0.5:
            keys, num_keyed, num_more = running.pop(draw.randrange(len(running)))
            if draw.random() < 0.5:
                cache.store(keys[num_keyed:])
                num_keyed = len(keys)
            cache.release(keys[:num_keyed], len(keys) - num_keyed + num_more)
        else:
            keys, num_more = draw.choice(prompts), draw.randrange(3)
            num_held = cache.try_take(keys, num_more)
            if num_held is not None:
                running.append((keys, num_held, num_more))
        cache.check_integrity()
