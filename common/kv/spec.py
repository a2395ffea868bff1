"""Layout of a KV cache: groups of layers that share one block table, mirroring protos/layout.proto.

Knows sizes and names, no tensors. Only `full` groups are built; the others are refused by name where a pool
would be made of them (`KVCacheSpec.check_supported`).
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

from common.errors import UnsupportedModelError

LAYOUT_VERSION = 1
FINGERPRINT_BYTES = 16
ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2}


class KVCacheKind(IntEnum):
    """What a group's layers keep. The values are those of protos/layout.proto."""

    FULL = 1
    WINDOW = 2
    LATENT = 3
    STATE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheGroup:
    """Layers that share one block table.

    For FULL a block is one contiguous slab [num_layers, num_components, num_kv_heads, block_size, head_dim].
    """

    group_id: int
    kind: KVCacheKind = KVCacheKind.FULL
    layers: tuple[int, ...]  # layer indices
    num_components: int = 2  # keys and values
    num_kv_heads: int
    head_dim: int  # elements
    block_size: int  # tokens
    dtype: str  # a key of ITEMSIZES

    def __post_init__(self) -> None:
        if not self.layers or len(set(self.layers)) != len(self.layers):
            raise ValueError(f"layers of group {self.group_id} must be distinct and at least one, are {self.layers}")
        for name in ("num_components", "num_kv_heads", "head_dim", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of group {self.group_id} must be at least 1, is {getattr(self, name)}")
        if self.dtype not in ITEMSIZES:
            raise ValueError(f"dtype of group {self.group_id} must be one of {', '.join(ITEMSIZES)}, is {self.dtype!r}")
        if self.kind is KVCacheKind.FULL and self.num_components != 2:
            raise ValueError(f"a full group has 2 components (keys, values), group {self.group_id} has others")

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def itemsize(self) -> int:
        return ITEMSIZES[self.dtype]

    @property
    def block_shape(self) -> tuple[int, int, int, int, int]:
        """(num_layers, num_components, num_kv_heads, block_size, head_dim)."""
        return (self.num_layers, self.num_components, self.num_kv_heads, self.block_size, self.head_dim)

    @property
    def bytes_per_block(self) -> int:
        num_layers, num_components, num_kv_heads, block_size, head_dim = self.block_shape
        return num_layers * num_components * num_kv_heads * block_size * head_dim * self.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCacheSpec:
    """The groups of one model's KV cache. All groups have the same block size."""

    groups: tuple[KVCacheGroup, ...]

    def __post_init__(self) -> None:
        if [group.group_id for group in self.groups] != list(range(len(self.groups))) or not self.groups:
            raise ValueError("group ids must be 0, 1, … in order, and there must be one")
        if len({group.block_size for group in self.groups}) != 1:
            raise ValueError("all groups must have one block size")

    @property
    def block_size(self) -> int:
        """Tokens."""
        return self.groups[0].block_size

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block of each group together."""
        return sum(group.bytes_per_block for group in self.groups)

    def fingerprint(self) -> bytes:
        """16 bytes that two workers must share to move blocks between them."""
        digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
        digest.update(struct.pack("<II", LAYOUT_VERSION, len(self.groups)))
        for group in self.groups:
            numbers = (
                group.group_id,
                int(group.kind),
                group.num_components,
                group.num_kv_heads,
                group.head_dim,
                group.block_size,
                group.num_layers,
                *group.layers,
            )
            digest.update(struct.pack(f"<{len(numbers)}I", *numbers))
            dtype = group.dtype.encode()
            digest.update(struct.pack("<I", len(dtype)) + dtype)
        return digest.digest()

    def check_supported(self) -> None:
        """Raises UnsupportedModelError that names the first kind of group that is not built."""
        for group in self.groups:
            if group.kind is not KVCacheKind.FULL:
                raise UnsupportedModelError(
                    f"KV cache group {group.group_id} is of kind {group.kind.name.lower()!r}: only 'full' is built"
                )
