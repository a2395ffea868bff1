"""The router's view of the index server: the fleet's members and the prefixes that they hold."""

from __future__ import annotations

from collections.abc import Sequence

from common.config import IndexConfig
from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.membership import Membership
from common.index.points import IndexSpace, WorkerRef
from common.kv.block_key import BlockKey
from router.fleet import Fleet
from router.planning.roster import Roster
from router.prefix_lookup import PrefixDepths
from router.worker_info import WorkerInfo


class IndexView:
    """A PrefixLookup, and the source of the fleet's members. Owned by the event loop."""

    def __init__(self, config: IndexConfig, roster: Roster) -> None:
        assert config.index_url is not None
        self._roster = roster
        self._client = IndexClient.from_url(config.index_url)
        space = IndexSpace(
            namespace=config.namespace, index_stride=config.index_stride, num_shards=self._client.num_shards
        )
        self._lookup = IndexLookup(self._client, space, deadline_s=config.index_deadline_ms / 1000)
        self._membership = Membership(self._client, space)

    def start(self) -> None:
        self._lookup.start()

    async def close(self) -> None:
        await self._lookup.stop()
        await self._client.close()

    @property
    def num_degraded_shards(self) -> int:
        """See PrefixLookup."""
        return self._lookup.num_degraded_shards

    async def depths(self, worker: WorkerInfo, point_keys: Sequence[BlockKey]) -> PrefixDepths:
        """See PrefixLookup."""
        if not point_keys:
            return PrefixDepths()
        depths = (await self._lookup.depth(point_keys)).depths
        current = {holder.worker_id: depth for holder, depth in depths.items() if self._is_current(holder)}
        return PrefixDepths(
            held={worker_id: depth.device_points for worker_id, depth in current.items()},
            expected={worker_id: depth.speculative_points for worker_id, depth in current.items()},
        )

    async def speculate(self, worker: WorkerInfo, point_keys: Sequence[BlockKey], first: int, life_s: float) -> None:
        """See PrefixLookup. A shard that does not take it costs siblings at other routers their hit, no more."""
        ref = WorkerRef(worker.worker_id, worker.incarnation)
        await self._lookup.speculate(ref, point_keys, first=first, life_s=life_s)

    def _is_current(self, holder: WorkerRef) -> bool:
        """What an earlier life of a worker held says nothing of the one that this router is attached to."""
        account = self._roster.find(holder.worker_id)
        return account is not None and account.info.incarnation == holder.incarnation

    async def watch(self, fleet: Fleet) -> None:
        """Keeps the fleet's members as the index has them. Until cancelled."""
        async for members in self._membership.watch():
            await fleet.set_members({worker_id: member.payload for worker_id, member in members.items()})
