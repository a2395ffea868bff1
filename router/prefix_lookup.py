"""How deep each worker holds a prompt's prefix, by the global index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from common.kv.block_key import BlockKey
from common.request import WorkerId
from router.worker_info import WorkerInfo


class PrefixLookup(Protocol):
    """Never raises: without an index every depth is 0, and `degraded` says so."""

    @property
    def degraded(self) -> bool: ...

    async def depths(self, worker: WorkerInfo, point_keys: Sequence[BlockKey]) -> Mapping[WorkerId, int]:
        """Tokens held from the prompt's start, by worker; a worker that holds none may be missing."""
        ...


class NoIndex:
    """A fleet of workers named by hand, with no index server: routing goes by load."""

    degraded = False

    async def depths(self, worker: WorkerInfo, point_keys: Sequence[BlockKey]) -> Mapping[WorkerId, int]:
        return {}
