"""A worker's presence in the index server: its lease in the fleet, and its cached prefixes."""

from __future__ import annotations

from common.config import IndexConfig
from common.index.client import IndexClient
from common.index.membership import Lease, Membership
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher
from common.kv.cache_event import CacheEvent
from common.request import WorkerId
from common.worker.registration import WorkerIdentity
from protos import worker_pb2


class IndexPresence:
    """Owned by the event loop. Without an index URL the worker is only found by its address."""

    def __init__(self, config: IndexConfig, identity: WorkerIdentity, lease_s: float) -> None:
        self._lease_s = lease_s
        self._worker = WorkerRef(WorkerId(identity.worker_id), identity.incarnation)
        self._client: IndexClient | None = None
        self._lease: Lease | None = None
        if config.index_url is None:
            return
        self._client = IndexClient.from_url(config.index_url)
        self._space = IndexSpace(
            namespace=config.namespace, index_stride=config.index_stride, num_shards=self._client.num_shards
        )
        self._publisher = IndexPublisher(self._client, self._space, self._worker)
        self._publisher.start()

    def publish(self, events: list[CacheEvent]) -> None:
        if self._client is not None:
            self._publisher.publish(events)

    def state(self) -> worker_pb2.IndexState | None:
        """For load reports; None without an index."""
        if self._client is None:
            return None
        stats = self._publisher.stats()
        return worker_pb2.IndexState(
            num_points=stats.num_points,
            num_pending=stats.num_pending,
            num_dropped=stats.num_dropped,
            num_away_shards=stats.num_away_shards,
            num_registrations=stats.num_registrations,
        )

    def join(self, registration: worker_pb2.WorkerRegistration) -> None:
        """Enters the fleet, or tells it a new registration."""
        if self._client is None:
            return
        payload = registration.SerializeToString()
        if self._lease is None:
            self._lease = Membership(self._client, self._space).register(self._worker, payload, self._lease_s)
        else:
            self._lease.update(payload)

    async def leave(self) -> None:
        if self._client is None:
            return
        if self._lease is not None:
            await self._lease.release()
        await self._publisher.stop()
        await self._client.close()
