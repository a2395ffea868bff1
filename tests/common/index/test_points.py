from __future__ import annotations

import os
import random
import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from common.errors import ConfigError
from common.index.points import IndexSpace, Tier, decode_value

NUM_SLOTS = 1 << 14  # as functions.lua has them
entries = st.dictionaries(st.integers(0, NUM_SLOTS - 1), st.sampled_from(Tier), max_size=200)


@given(entries)
def test_a_value_holds_slots_and_tiers_in_two_bytes_each(value: dict[int, Tier]) -> None:
    encoded = b"".join(struct.pack(">H", slot << 2 | tier) for slot, tier in sorted(value.items()))
    assert decode_value(encoded) == value


def test_points_are_the_multiples_of_the_stride() -> None:
    space = IndexSpace(namespace="fleet", index_stride=64)
    block_keys = [bytes([i]) * 16 for i in range(11)]  # of 16 tokens: 64, 128 and 48 more
    assert space.point_keys(block_keys, 16) == [block_keys[3], block_keys[7]]
    assert space.point_keys(block_keys[:3], 16) == []
    assert [n for n in (0, 16, 64, 96, 128) if space.is_point(n)] == [64, 128]


@pytest.mark.parametrize("num_shards", [1, 2, 3, 5, 12])
def test_places_are_the_shards_of_the_points(num_shards: int) -> None:
    space = IndexSpace(namespace="fleet", index_stride=64, num_shards=num_shards)
    for count in (0, 1, num_shards, num_shards + 1, 100):
        keys = [os.urandom(16) for _ in range(count)]
        places = {index: shard for shard, indices in space.places(keys).items() for index in indices}
        assert places == {index: space.shard_of(key, index) for index, key in enumerate(keys)}
        for first in (0, 1, count // 2, count):
            rest = {index: shard for shard, found in space.places(keys[first:], first).items() for index in found}
            assert rest == {index - first: places[index] for index in range(first, count)}


def busiest_over_mean(prompts: list[list[bytes]], rng: random.Random, num_requests: int = 500) -> float:
    """Points asked of the busiest of 12 shards, by requests that add a tail of their own to a shared prompt."""
    space = IndexSpace(namespace="fleet", index_stride=64, num_shards=12)
    load = Counter[int]()
    for _ in range(num_requests):
        keys = rng.choice(prompts) + [rng.randbytes(16) for _ in range(rng.randint(0, 16))]
        load.update({shard: len(indices) for shard, indices in space.places(keys).items()})
    return max(load.values()) * space.num_shards / load.total()


@pytest.mark.parametrize(
    ("num_prompts", "num_points"), [(64, 16), (64, 31), (1, 156)], ids=["64 x 1,000", "64 x 2,000", "1 x 10,000 tokens"]
)
def test_no_shard_is_hot(num_prompts: int, num_points: int) -> None:
    ratios = []
    for seed in range(20):
        rng = random.Random(seed)
        prompts = [[rng.randbytes(16) for _ in range(num_points)] for _ in range(num_prompts)]
        ratios.append(busiest_over_mean(prompts, rng))
    assert sorted(ratios)[-3] <= 1.3  # one prompt in ten is unlucky
    assert sum(ratios) / len(ratios) <= 1.22


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 4, 6])
def test_shards_lie_evenly_over_a_clusters_nodes(num_nodes: int) -> None:
    space = IndexSpace(namespace="fleet", index_stride=64, num_shards=12)
    counts = Counter(key_slot(keys.points) * num_nodes // 16384 for keys in space.shards())
    assert set(counts.values()) == {12 // num_nodes}


def test_keys_of_a_shard_share_a_hash_slot() -> None:
    for keys in IndexSpace(namespace="fleet", index_stride=64, num_shards=5).shards():
        assert len({key_slot(name) for name in keys.all(slot=7)}) == 1


def test_fleets_with_other_strides_or_shards_never_share_keys() -> None:
    spaces = [IndexSpace(namespace="fleet", index_stride=s, num_shards=n) for s in (64, 128) for n in (1, 2)]
    names = [keys.points for space in spaces for keys in space.shards()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("namespace", ["", "a b", "{a}", "x" * 65])
def test_bad_namespace_is_named(namespace: str) -> None:
    with pytest.raises(ConfigError, match="namespace"):
        IndexSpace(namespace=namespace, index_stride=64)
