from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping

import pytest
from redis import Redis

from common.index.client import IndexClient
from common.index.membership import Member, Membership
from common.index.points import IndexSpace
from common.index.server import EmbeddedIndexServer
from common.request import WorkerId
from tests.support.valkey import eventually, worker_ref

pytestmark = pytest.mark.asyncio

Members = Mapping[WorkerId, Member]


@pytest.fixture
def space() -> IndexSpace:
    """Membership knows no shards."""
    return IndexSpace(namespace=uuid.uuid4().hex, index_stride=64)


class Watcher:
    """Collects what a watch tells."""

    def __init__(self, membership: Membership, grace_s: float = 10.0) -> None:
        self.seen: list[Members] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._watch(membership, grace_s))

    async def until(self, holds: Callable[[Members], bool]) -> Members:
        async with asyncio.timeout(5.0):
            while not self.seen or not holds(self.seen[-1]):
                self._news.clear()
                await self._news.wait()
        return self.seen[-1]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self, membership: Membership, grace_s: float) -> None:
        async for members in membership.watch(poll_s=0.02, grace_s=grace_s):
            self.seen.append(members)
            self._news.set()


async def test_workers_come_change_and_go(client: IndexClient, space: IndexSpace) -> None:
    membership = Membership(client, space)
    watcher = Watcher(membership)
    assert await watcher.until(lambda members: not members) == {}
    lease = membership.register(worker_ref("w", 2**63), b"starting", 5.0)
    members = await watcher.until(lambda members: len(members) == 1)
    assert members[WorkerId("w")] == Member(worker=worker_ref("w", 2**63), payload=b"starting")
    lease.update(b"ready")
    await watcher.until(lambda members: members[WorkerId("w")].payload == b"ready")
    await lease.release()
    await lease.release()
    await watcher.until(lambda members: not members)
    await watcher.stop()


async def test_renewal_is_no_news(client: IndexClient, space: IndexSpace) -> None:
    membership = Membership(client, space)
    lease = membership.register(worker_ref("w"), b"payload", 0.6)
    watcher = Watcher(membership)
    await watcher.until(lambda members: len(members) == 1)
    count = len(watcher.seen)
    await asyncio.sleep(0.8)
    assert len(watcher.seen) == count
    await lease.release()
    await watcher.stop()


async def test_lease_of_a_silent_worker_runs_out(index_server: EmbeddedIndexServer, space: IndexSpace) -> None:
    its_client, our_client = (IndexClient.from_url(index_server.url) for _ in range(2))
    Membership(its_client, space).register(worker_ref("w"), b"payload", 0.3)
    watcher = Watcher(Membership(our_client, space))
    await watcher.until(lambda members: len(members) == 1)
    for task in asyncio.all_tasks():
        if task.get_name() == "membership-lease":
            task.cancel()  # as if the worker had died
    await watcher.until(lambda members: not members)
    await watcher.stop()
    await its_client.close()
    await our_client.close()


async def test_restarted_worker_takes_its_name_from_its_past(client: IndexClient, space: IndexSpace) -> None:
    membership = Membership(client, space)
    watcher = Watcher(membership)
    old = membership.register(worker_ref("w", 1), b"old", 0.2)
    await watcher.until(lambda members: len(members) == 1)
    new = membership.register(worker_ref("w", 2), b"new", 0.2)
    await watcher.until(lambda members: bool(members) and members[WorkerId("w")].payload == b"new")

    async def superseded() -> bool:
        return old.superseded

    await eventually(superseded)
    await old.release()
    await asyncio.sleep(0.1)
    assert watcher.seen[-1][WorkerId("w")].worker.incarnation == 2
    await new.release()
    await watcher.stop()


async def test_lost_server_keeps_the_last_known_workers() -> None:
    server = EmbeddedIndexServer()
    server.start()
    client = IndexClient.from_url(server.url, timeout_s=0.2)
    membership = Membership(client, IndexSpace(namespace="fleet", index_stride=64))
    lease, watcher = membership.register(worker_ref("w"), b"payload", 5.0), Watcher(membership)
    await watcher.until(lambda members: len(members) == 1)
    server.stop()
    await asyncio.sleep(0.3)
    assert len(watcher.seen[-1]) == 1
    await watcher.stop()
    await lease.release()
    await client.close()


async def test_flushed_server_drops_nobody_who_renews(
    own_server: EmbeddedIndexServer, own_client: IndexClient, space: IndexSpace
) -> None:
    membership = Membership(own_client, space)
    slow = membership.register(worker_ref("slow"), b"payload", 60.0)
    quick = membership.register(worker_ref("quick"), b"payload", 0.6)
    watcher = Watcher(membership, grace_s=2.0)
    await watcher.until(lambda members: len(members) == 2)
    told = len(watcher.seen)
    with Redis.from_url(own_server.url) as redis:
        redis.flushall()
    await asyncio.sleep(0.3)
    assert all(len(members) == 2 for members in watcher.seen[told - 1 :])
    members = await watcher.until(lambda members: len(members) == 1)  # the grace has passed
    assert set(members) == {"quick"}
    await slow.release()
    await quick.release()
    await watcher.stop()
