"""Checksums of blocks: which exist, and how they are computed.

XXH3-64 is the one in use: 30 GB/s from memory and 100 GB/s from the cache on one core, 0.03 CPU seconds per GB, where
CRC-32C took 0.06 and zlib's CRC-32 0.15. It finds accidents, not forgers: a source is trusted with what it computes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from enum import Enum

import xxhash

from protos import transfer_pb2 as pb


class Checksum(Enum):
    """By its name on the wire, best first."""

    XXH3_64 = "xxh3_64"
    CRC32 = "crc32"  # what workers of the first protocol send
    NONE = "none"

    def of(self, data: memoryview) -> int:
        """Of one block's bytes. Releases the interpreter lock meanwhile."""
        match self:
            case Checksum.XXH3_64:
                return xxhash.xxh3_64_intdigest(data)
            case Checksum.CRC32:
                return zlib.crc32(data)
            case Checksum.NONE:
                return 0


class RunningChecksum:
    """Of bytes that come in portions: `value` is what `of` says of all of them."""

    def __init__(self, checksum: Checksum) -> None:
        self._checksum = checksum
        self._hasher = xxhash.xxh3_64() if checksum is Checksum.XXH3_64 else None
        self._crc32 = 0

    def update(self, data: memoryview) -> None:
        """Releases the interpreter lock meanwhile."""
        if self._hasher is not None:
            self._hasher.update(data)
        elif self._checksum is Checksum.CRC32:
            self._crc32 = zlib.crc32(data, self._crc32)

    @property
    def value(self) -> int:
        return self._crc32 if self._hasher is None else self._hasher.intdigest()


_TO_WIRE = {
    Checksum.XXH3_64: pb.CHECKSUM_KIND_XXH3_64,
    Checksum.CRC32: pb.CHECKSUM_KIND_CRC32,
    Checksum.NONE: pb.CHECKSUM_KIND_NONE,
}
_FROM_WIRE = {wire: checksum for checksum, wire in _TO_WIRE.items()} | {pb.CHECKSUM_KIND_UNSPECIFIED: Checksum.CRC32}


def encode_checksum(checksum: Checksum) -> pb.ChecksumKind:
    return _TO_WIRE[checksum]


def decode_checksum(kind: pb.ChecksumKind) -> Checksum | None:
    """None for one that this version does not know."""
    return _FROM_WIRE.get(kind)


def choose_checksum(wanted: Checksum, accepted: Iterable[str]) -> Checksum:
    """The one that a source computes for a sink; a sink that names none is one of the first protocol."""
    names = tuple(accepted) or (Checksum.CRC32.value,)
    if wanted.value in names:
        return wanted
    known = [checksum for checksum in Checksum if checksum.value in names and checksum is not Checksum.NONE]
    return known[0] if known else Checksum.CRC32
