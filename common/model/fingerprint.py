"""Names a model's weights, so that two models of one shape never share KV blocks."""

from __future__ import annotations

import hashlib
import os
import struct

from common.model.architecture import ArchitectureConfig
from common.model.checkpoint import Checkpoint, TensorEntry

FINGERPRINT_BYTES = 16
FINGERPRINT_VERSION = 1
NUM_SAMPLES = 16
SAMPLE_BYTES = 4096  # 64 KiB of each tensor, spread over it


def model_fingerprint(architecture: ArchitectureConfig, checkpoint: Checkpoint) -> bytes:
    """16 bytes: BLAKE2b over the architecture and samples of the checkpoint's own bytes, whatever dtype it is
    loaded in."""
    digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES)
    _update(digest, struct.pack("<I", FINGERPRINT_VERSION))
    _update(digest, architecture.canonical())
    for name in sorted(checkpoint.entries):
        entry = checkpoint.entries[name]
        _update(digest, f"{name} {entry.dtype} {entry.shape}".encode())
        _update(digest, _sample(entry))
    return digest.digest()


def _sample(entry: TensorEntry) -> bytes:
    """The whole tensor where it is small, else evenly spaced pieces, the first and the last included."""
    file = os.open(entry.path, os.O_RDONLY)
    try:
        if entry.num_bytes <= NUM_SAMPLES * SAMPLE_BYTES:
            return os.pread(file, entry.num_bytes, entry.offset)
        last = entry.num_bytes - SAMPLE_BYTES
        starts = [last * number // (NUM_SAMPLES - 1) for number in range(NUM_SAMPLES)]
        return b"".join(os.pread(file, SAMPLE_BYTES, entry.offset + start) for start in starts)
    finally:
        os.close(file)


def _update(digest: hashlib.blake2b, part: bytes) -> None:
    digest.update(struct.pack("<Q", len(part)))
    digest.update(part)
