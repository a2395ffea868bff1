"""Which process a connection on this machine comes from, by what Linux tells in /proc.

Asked while everything else waits, so it must take no more than a few milliseconds: psutil reads every socket of every
process for it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
LOCAL_ADDRESS, INODE = 1, 9  # columns


def find_owner(port: int, pids: Iterable[int]) -> int | None:
    """The process among `pids` that has a socket with this local port; None when none has."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    return next((pid for pid in pids if not wanted.isdisjoint(_sockets(pid))), None)


def _inodes(port: int) -> Iterator[str]:
    ending = f":{port:04X}"
    for table in TABLES:
        for line in table.read_text().splitlines()[1:]:
            columns = line.split()
            if columns[LOCAL_ADDRESS].endswith(ending):
                yield columns[INODE]


def _sockets(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return  # it has ended
    for name in names:
        with contextlib.suppress(OSError):  # closed meanwhile
            yield os.readlink(f"{folder}/{name}")
