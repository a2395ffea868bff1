"""What the prefix index is told about a worker's pool."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from common.kv.block_key import BlockKey


class CacheEventKind(StrEnum):
    STORED = "stored"
    EVICTED = "evicted"
    CLEARED = "cleared"


class CacheEvent(NamedTuple):
    """`num_tokens` is the length in tokens of the prefix that `key` names. CLEARED has an empty key: all is gone.

    Events come in the order in which they happened; a prefix is stored before its extensions and evicted after.
    """

    kind: CacheEventKind
    key: BlockKey
    num_tokens: int
