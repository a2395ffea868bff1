"""Block keys: the one function by which workers and routers name the content of a KV block.

A key is BLAKE2b-16(parent key ‖ little-endian uint32 token ids), so that equal keys mean equal whole prefixes
under the same root. The root covers everything else that the KV values depend on. A worker proves with
`golden_key()` that it computes the same function.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np

BlockKey = NewType("BlockKey", bytes)

KEY_BYTES = 16
KEY_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRoot:
    """What a worker's KV depends on beside tokens and salts. Its digest is the fleet's root of block keys."""

    schema: int = KEY_SCHEMA
    model_fingerprint: bytes
    weight_dtype: str
    kv_dtype: str
    layout_fingerprint: bytes
    block_size: int  # tokens
    lora_id: str = ""

    def digest(self) -> bytes:
        """16 bytes; every field is length-prefixed."""
        return _hash_fields(
            struct.pack("<I", self.schema),
            self.model_fingerprint,
            self.weight_dtype.encode(),
            self.kv_dtype.encode(),
            self.layout_fingerprint,
            struct.pack("<I", self.block_size),
            self.lora_id.encode(),
        )


def root_key(root: KeyRoot) -> BlockKey:
    """The root without salts, as registered by a worker."""
    return BlockKey(root.digest())


def root_with_salt(key_root: bytes, cache_salt: bytes) -> BlockKey:
    """The parent of a request's first block: `key_root` is a registered root, `cache_salt` the leg's."""
    return BlockKey(
        hashlib.blake2b(
            key_root + struct.pack("<I", len(cache_salt)) + cache_salt,
            digest_size=KEY_BYTES,
        ).digest()
    )


def block_keys(root: BlockKey, token_ids: Sequence[int], block_size: int) -> list[BlockKey]:
    """Keys of the full blocks of `token_ids`, each chained to the one before; a partial last block has none."""
    num_full_tokens = len(token_ids) // block_size * block_size
    if not num_full_tokens:
        return []
    data = np.asarray(token_ids[:num_full_tokens], dtype="<u4").tobytes()
    stride = block_size * 4
    keys: list[BlockKey] = []
    parent = root
    for start in range(0, len(data), stride):
        parent = child_key(parent, data[start : start + stride])
        keys.append(parent)
    return keys


def child_key(parent: BlockKey, token_bytes: bytes) -> BlockKey:
    """The key of the full block after `parent`. `token_bytes` is its token ids as little-endian uint32."""
    return BlockKey(hashlib.blake2b(parent + token_bytes, digest_size=KEY_BYTES).digest())


def golden_key() -> BlockKey:
    """The key of a known vector. Workers with another value compute another function and are refused."""
    root = KeyRoot(
        model_fingerprint=bytes(range(16)),
        weight_dtype="float32",
        kv_dtype="bfloat16",
        layout_fingerprint=bytes(range(16, 32)),
        block_size=16,
        lora_id="lora",
    )
    salted = root_with_salt(root_key(root), b"golden salt")
    return block_keys(salted, [0, 1, 255, 256, 65535, 65536, 2**31, 2**32 - 1, *range(40)], 16)[-1]


def _hash_fields(*fields: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=KEY_BYTES)
    for value in fields:
        digest.update(struct.pack("<I", len(value)) + value)
    return digest.digest()
