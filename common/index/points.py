"""Which prefixes are points of the index, where they lie, and how a point's value reads.

A point is the chained block key of a prefix whose length is a multiple of `index_stride` tokens. Keys already
carry the model, the layout and the salts, so that different models never meet. Knows no connection.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from math import gcd
from typing import NamedTuple

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from common.config import NAMESPACE
from common.errors import ConfigError
from common.request import WorkerId

KEY_BYTES = 16
MAX_SHARDS = 256
HASHED_ROUNDS = 2  # fewer make one shared prompt more even, more make many prompts of equal length more even
VERSION_FIELD = b"v"  # field of the points hash, beside 16-byte keys, that changes with the slot table


class Tier(IntEnum):
    """Where a worker holds a point; lower is faster. SPECULATIVE: routed there, and expected soon."""

    DEVICE = 0
    HOST = 1
    DISK = 2
    SPECULATIVE = 3


TIERS = tuple(Tier)  # Tier(n) looks n up in Python


class WorkerRef(NamedTuple):
    """One life of a worker."""

    worker_id: WorkerId
    incarnation: int  # unsigned 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardKeys:
    """Names of one shard's keys in the server. All carry one hash tag, so a cluster keeps them together."""

    prefix: bytes

    @property
    def name(self) -> str:
        """For people."""
        return self.prefix.decode().rstrip(":")

    @property
    def points(self) -> bytes:
        """HASH: 16-byte key → value, and the slot table's version."""
        return self.prefix + b"points"

    @property
    def slots(self) -> bytes:
        """HASH: worker slot → record."""
        return self.prefix + b"slots"

    def reverse(self, slot: int) -> bytes:
        """SET of the keys that a slot holds."""
        return self.prefix + b"held:%d" % slot

    def all(self, slot: int | None = None) -> tuple[bytes, ...]:
        """KEYS of the server's functions, in their order."""
        names = (b"points", b"slots", b"workers", b"meta", b"beats", b"dirty", b"cooling", b"free", b"guesses")
        keys = tuple(self.prefix + name for name in (*names, b"guess_until"))
        return keys if slot is None else (*keys, self.reverse(slot))


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSpace:
    """One fleet's part of an index server. Every process of the fleet must have an equal one.

    Raises ConfigError that names the setting.
    """

    namespace: str
    index_stride: int  # tokens
    num_shards: int = 1
    # Neighbouring points go to different nodes of a cluster, which hold runs of shards.
    _step: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not NAMESPACE.fullmatch(self.namespace):
            raise ConfigError("namespace", f"must be 1 to 64 of A-Z a-z 0-9 _ . -, is {self.namespace!r}")
        if self.index_stride < 1:
            raise ConfigError("index_stride", f"must be at least 1, is {self.index_stride}")
        if not 1 <= self.num_shards <= MAX_SHARDS:
            raise ConfigError("index_url", f"shards must be from 1 to {MAX_SHARDS}, is {self.num_shards}")
        candidates = range(self.num_shards // 3 + 1, self.num_shards + 2)
        object.__setattr__(self, "_step", next(step for step in candidates if gcd(step, self.num_shards) == 1))

    def is_point(self, num_tokens: int) -> bool:
        return num_tokens > 0 and num_tokens % self.index_stride == 0

    def point_keys(self, block_keys: Sequence[bytes], block_size: int) -> list[bytes]:
        """The points among the chained keys of a prompt's full blocks, shortest prefix first."""
        assert self.index_stride % block_size == 0, "the stride is a multiple of the block size"
        blocks_per_point = self.index_stride // block_size
        return list(block_keys[blocks_per_point - 1 :: blocks_per_point])

    def shard_of(self, key: bytes, index: int) -> int:
        """`index`: how many points of the same prompt are shorter.

        A prompt's first points are spread by their keys, so that many short prompts load all shards alike; the
        further ones go round, so that one long prompt that all requests share does too. Keys alone would give the
        busiest of 12 shards 1.4 times the mean for a prompt of 10,000 tokens.
        """
        if index >= HASHED_ROUNDS * self.num_shards:
            return index * self._step % self.num_shards
        return int.from_bytes(key[:4], "little") % self.num_shards

    def places(self, keys: Sequence[bytes], first: int = 0) -> dict[int, list[int]]:
        """Shard → places in `keys`, the points of a prompt from the one with index `first` on."""
        num_shards = self.num_shards
        num_hashed = min(len(keys), max(0, HASHED_ROUNDS * num_shards - first))
        places: dict[int, list[int]] = {}
        for place in range(num_hashed):
            places.setdefault(self.shard_of(keys[place], first + place), []).append(place)
        for place in range(num_hashed, min(num_hashed + num_shards, len(keys))):
            shard = (first + place) * self._step % num_shards
            places.setdefault(shard, []).extend(range(place, len(keys), num_shards))
        return places

    def shards(self) -> tuple[ShardKeys, ...]:
        """Keys of each shard. Their tags are chosen so that the shards lie evenly over a cluster's hash slots."""
        return tuple(ShardKeys(prefix=b"slipstream:{%s}:" % self._tag(shard)) for shard in range(self.num_shards))

    def membership_prefix(self) -> bytes:
        """Leases don't depend on the stride: workers that are refused for theirs must be seen."""
        return b"slipstream:{%s:members}:" % self.namespace.encode()

    def _tag(self, shard: int) -> bytes:
        low = shard * REDIS_CLUSTER_HASH_SLOTS // self.num_shards
        high = (shard + 1) * REDIS_CLUSTER_HASH_SLOTS // self.num_shards
        attempt = 0
        while True:
            tag = f"{self.namespace}:{self.index_stride}:{self.num_shards}:{shard}:{attempt}".encode()
            if low <= key_slot(tag) < high:
                return tag
            attempt += 1


def decode_value(value: bytes) -> dict[int, Tier]:
    """Worker slot → tier, of a sorted list of big-endian 2-byte entries: 14 bits of slot, 2 of tier."""
    codes: Iterable[int] = struct.unpack(f">{len(value) // 2}H", value)
    return {code >> 2: TIERS[code & 3] for code in codes}


def encode_owner(worker: WorkerRef, started_us: int) -> bytes:
    """Who owns a slot: incarnation, time of its start (microseconds since 1970), worker id."""
    return struct.pack(">QQ", worker.incarnation, started_us) + worker.worker_id.encode()


def decode_record(record: bytes) -> tuple[bool, WorkerRef, bytes]:
    """A slot table's record: is it live, whose, and the owner's bytes as `encode_owner` made them."""
    owner = record[1:]
    (incarnation,) = struct.unpack_from(">Q", owner)
    return record[:1] == b"L", WorkerRef(WorkerId(owner[16:].decode()), incarnation), owner
