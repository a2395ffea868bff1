"""Breaks ties, so that several routers with the same view don't all pick the same worker."""

from __future__ import annotations

import zlib

from router.policy.interface import Candidate, RequestShape


def jitter(request: RequestShape, candidate: Candidate) -> float:
    """A number in [0, 1), different per request and worker."""
    return zlib.crc32(candidate.worker_id.encode(), int(request.draw * 2**32)) / 2**32
