"""Rings in shared memory: who may open them, and what becomes of those whose maker was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from common.errors import UnavailableError
from common.transport.shared_memory import SharedRing, sweep_orphans
from tests.support.transfer import rings_in

MAKE_RING = """
import sys, time
from pathlib import Path
from common.transport.shared_memory import SharedRing
made = SharedRing.make(Path(sys.argv[1]), num_slots=2, slot_bytes=4096)
print("made", flush=True)
time.sleep(60)
"""


def open_ring(directory: Path, ring: SharedRing, **changes: object) -> SharedRing:
    fields = {"nonce": ring.nonce, "num_slots": ring.num_slots, "slot_bytes": ring.slot_bytes, **changes}
    return SharedRing.open(directory, ring.name, **fields)  # type: ignore[arg-type]


def test_what_one_end_writes_the_other_reads(tmp_path: Path) -> None:
    made = SharedRing.make(tmp_path, num_slots=2, slot_bytes=4096)
    opened = open_ring(tmp_path, made.ring)
    made.unlink()
    assert not rings_in(tmp_path)
    made.ring.slots[1, :3] = (1, 2, 3)
    assert opened.slots[1, :3].tolist() == [1, 2, 3]
    assert not opened.slots[0].any()


def test_the_other_end_can_not_write(tmp_path: Path) -> None:
    made = SharedRing.make(tmp_path, num_slots=1, slot_bytes=4096)
    opened = open_ring(tmp_path, made.ring)
    with pytest.raises(ValueError, match="read-only"):
        opened.slots[0, 0] = np.uint8(1)


def test_a_file_with_another_nonce_is_refused(tmp_path: Path) -> None:
    made = SharedRing.make(tmp_path, num_slots=1, slot_bytes=4096)
    with pytest.raises(UnavailableError, match="another file"):
        open_ring(tmp_path, made.ring, nonce=bytes(16))


@pytest.mark.parametrize(
    "changes", [{"slot_bytes": 8192}, {"num_slots": 0}, {"slot_bytes": 2**40}, {"nonce": b""}], ids=str
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    made = SharedRing.make(tmp_path, num_slots=1, slot_bytes=4096)
    with pytest.raises(UnavailableError):
        open_ring(tmp_path, made.ring, **changes)


@pytest.mark.parametrize("name", ["../secret", "slipstream-kv-../x", "passwd", ""])
def test_other_files_are_not_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnavailableError):
        SharedRing.open(tmp_path, name, bytes(16), num_slots=1, slot_bytes=4096)


def test_a_directory_that_is_not_there_is_no_shared_memory(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="no shared memory"):
        SharedRing.make(tmp_path / "absent", num_slots=1, slot_bytes=4096)


def test_a_killed_makers_ring_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKE_RING, str(tmp_path)], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for maker in makers:
            assert maker.stdout is not None and maker.stdout.readline() == b"made\n"
        assert sweep_orphans(tmp_path) == 0
        makers[0].send_signal(signal.SIGKILL)
        makers[0].wait(10)
        assert sweep_orphans(tmp_path) == 1
        assert len(rings_in(tmp_path)) == 1
    finally:
        for maker in makers:
            maker.kill()
            maker.wait(10)
            assert maker.stdout is not None
            maker.stdout.close()
