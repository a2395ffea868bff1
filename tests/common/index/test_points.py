from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from common.errors import ConfigError
from common.index.points import MAX_SLOTS, IndexSpace, Tier, decode_value, encode_value

entries = st.dictionaries(st.integers(0, MAX_SLOTS - 1), st.sampled_from(Tier), max_size=200)


@given(entries)
def test_value_survives_the_codec(value: dict[int, Tier]) -> None:
    assert decode_value(encode_value(value)) == value


@given(entries)
def test_value_is_two_sorted_bytes_per_worker(value: dict[int, Tier]) -> None:
    encoded = encode_value(value)
    pairs = [encoded[i : i + 2] for i in range(0, len(encoded), 2)]
    assert len(pairs) == len(value)
    assert pairs == sorted(pairs)


def test_points_are_the_multiples_of_the_stride() -> None:
    space = IndexSpace(namespace="fleet", index_stride=64)
    block_keys = [bytes([i]) * 16 for i in range(11)]  # of 16 tokens: 64, 128 and 48 more
    assert space.point_keys(block_keys, 16) == [block_keys[3], block_keys[7]]
    assert space.point_keys(block_keys[:3], 16) == []
    assert [n for n in (0, 16, 64, 96, 128) if space.is_point(n)] == [64, 128]


def test_shards_share_a_long_prompt_evenly() -> None:
    space = IndexSpace(namespace="fleet", index_stride=64, num_shards=3)
    counts = Counter(space.shard_of(os.urandom(16)) for _ in range(3000))
    assert max(counts.values()) < 1.3 * 1000


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
