"""The points of the prompts that the fake fleet serves: the same in all processes."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEvent, CacheEventKind

STRIDE = 64
NUM_SYSTEM_PROMPTS = 64
SYSTEM_POINTS = 31  # 2,000 tokens
TAILS_PER_PROMPT = 64
TAIL_POINTS = (1, 64)


def events(kind: CacheEventKind, keys: Sequence[bytes], first: int = 0) -> list[CacheEvent]:
    """Of points that lie `first` points deep, and on."""
    return [CacheEvent(kind, BlockKey(key), STRIDE * (first + i + 1)) for i, key in enumerate(keys)]


class Prompts:
    """System prompts, and conversations that go on from them."""

    def __init__(self) -> None:
        self._system = [_keys(f"system {number}", SYSTEM_POINTS) for number in range(NUM_SYSTEM_PROMPTS)]
        lengths = random.Random(0)
        self._tails = [
            [_keys(f"tail {number} {tail}", lengths.randint(*TAIL_POINTS)) for tail in range(TAILS_PER_PROMPT)]
            for number in range(NUM_SYSTEM_PROMPTS)
        ]

    def pick(self, rng: random.Random) -> tuple[int, int]:
        """A system prompt and a tail; the first ones are the popular ones."""
        return int(NUM_SYSTEM_PROMPTS * rng.random() ** 2), rng.randrange(TAILS_PER_PROMPT)

    def system(self, number: int) -> list[bytes]:
        return self._system[number]

    def tail(self, number: int, tail: int) -> list[bytes]:
        return self._tails[number][tail]


def _keys(name: str, count: int) -> list[bytes]:
    return [hashlib.blake2b(f"{name} {i}".encode(), digest_size=16).digest() for i in range(count)]
