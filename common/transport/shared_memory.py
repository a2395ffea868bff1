"""A ring in shared memory: a file in a memory file system that both ends map, whose name is gone once they have.

Files are locked for as long as their maker lives, and the kernel drops the lock of a process that is killed: what can
be locked is an orphan. So nothing has to know process ids, which differ between containers.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import mmap
import os
import secrets
from pathlib import Path

import numpy as np
import numpy.typing as npt

from common.errors import UnavailableError

PREFIX = "slipstream-kv-"
NONCE_BYTES = 16
# One slot is filled while the other is emptied. Larger ones take longer than an event loop may; more leave the cache:
# two of 2 MiB moved 3.7 GB/s, two of 4 MiB 4.5, eight of 2 MiB 3.5.
SLOT_BYTES = 4 * 2**20
NUM_SLOTS = 2
MAX_RING_BYTES = 256 * 2**20


class SharedRing:
    """`slots` is [num_slots, slot_bytes] uint8. One end makes it, the other opens it; each closes its own."""

    def __init__(self, name: str, nonce: bytes, mapping: mmap.mmap, num_slots: int, slot_bytes: int) -> None:
        self.name = name
        self.nonce = nonce
        self.num_slots = num_slots
        self.slot_bytes = slot_bytes
        self.slots: npt.NDArray[np.uint8] = np.frombuffer(mapping, np.uint8, num_slots * slot_bytes).reshape(
            num_slots, slot_bytes
        )

    @staticmethod
    def make(directory: Path, *, num_slots: int = NUM_SLOTS, slot_bytes: int = SLOT_BYTES) -> MadeRing:
        """Raises UnavailableError when there is no room, or no such directory."""
        name, nonce = PREFIX + secrets.token_hex(16), secrets.token_bytes(NONCE_BYTES)
        num_bytes = num_slots * slot_bytes
        try:
            file = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # Takes the memory now: a full file system would otherwise kill the process at its first write.
                os.posix_fallocate(file, 0, num_bytes + NONCE_BYTES)
                os.pwrite(file, nonce, num_bytes)
                mapping = mmap.mmap(file, num_bytes)
            except BaseException:
                os.unlink(directory / name)
                os.close(file)
                raise
        except OSError as error:
            raise UnavailableError(f"no shared memory in {directory}: {error.strerror}") from error
        return MadeRing(SharedRing(name, nonce, mapping, num_slots, slot_bytes), directory / name, file)

    @staticmethod
    def open(directory: Path, name: str, nonce: bytes, *, num_slots: int, slot_bytes: int) -> SharedRing:
        """Raises UnavailableError when the file is not the one that the other end made."""
        num_bytes = num_slots * slot_bytes
        if not _is_ring_name(name) or len(nonce) != NONCE_BYTES or not 0 < num_bytes <= MAX_RING_BYTES:
            raise UnavailableError("shared memory: no ring of ours is like that")
        try:
            file = os.open(directory / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise UnavailableError(f"the source's shared memory is not to be had here: {error.strerror}") from error
        try:
            if not hmac.compare_digest(os.pread(file, NONCE_BYTES + 1, num_bytes), nonce):
                raise UnavailableError("shared memory: another file of that name is here")
            return SharedRing(name, nonce, mmap.mmap(file, num_bytes, prot=mmap.PROT_READ), num_slots, slot_bytes)
        finally:
            os.close(file)


class MadeRing:
    """The maker's end: the file's name and its lock."""

    def __init__(self, ring: SharedRing, path: Path, file: int) -> None:
        self.ring = ring
        self._path: Path | None = path
        self._file: int | None = file

    def unlink(self) -> None:
        """The other end has it, or never will: the memory now lives as long as its mappings. Idempotent."""
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            self._path = None
        if self._file is not None:
            os.close(self._file)
            self._file = None


def sweep_orphans(directory: Path) -> int:
    """Unlinks the rings of processes that were killed before the other end had opened them. Returns how many."""
    num_swept = 0
    for path in directory.glob(f"{PREFIX}*"):
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue  # gone meanwhile, or another user's
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
            num_swept += 1
        except OSError:
            pass  # its maker lives
        finally:
            os.close(file)
    return num_swept


def _is_ring_name(name: str) -> bool:
    return name.startswith(PREFIX) and name.removeprefix(PREFIX).isalnum()
