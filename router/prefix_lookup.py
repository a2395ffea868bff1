"""How deep each worker holds a prompt's prefix, by the global index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from common.kv.block_key import BlockKey
from common.request import WorkerId
from router.worker_info import WorkerInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixDepths:
    """Leading points of a prompt, by worker; a worker that holds none may be missing.

    `held` is there by the worker's own word, `expected` is or will be soon: requests for it are under way.
    """

    held: Mapping[WorkerId, int] = field(default_factory=dict)
    expected: Mapping[WorkerId, int] = field(default_factory=dict)


class PrefixLookup(Protocol):
    """Never raises: without an answer every depth is 0, and `num_degraded_shards` says so."""

    @property
    def num_degraded_shards(self) -> int:
        """Of the index, those that don't answer now."""
        ...

    async def depths(self, worker: WorkerInfo, point_keys: Sequence[BlockKey]) -> PrefixDepths:
        """Who holds how much of a prompt with these points."""
        ...

    async def speculate(self, worker: WorkerInfo, point_keys: Sequence[BlockKey], first: int, life_s: float) -> None:
        """Tells other routers that the worker will hold these points soon: a prompt's from index `first` on.

        They believe it for `life_s`, 15 s at most.
        """
        ...


class NoIndex:
    """A fleet of workers named by hand, with no index server: routing goes by load."""

    num_degraded_shards = 0

    async def depths(self, worker: WorkerInfo, point_keys: Sequence[BlockKey]) -> PrefixDepths:
        return PrefixDepths()

    async def speculate(self, worker: WorkerInfo, point_keys: Sequence[BlockKey], first: int, life_s: float) -> None:
        pass  # there is nobody to tell
