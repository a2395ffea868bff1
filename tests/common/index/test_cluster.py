"""A real cluster of three primaries: all of the index at once, its load, and a node that goes and comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.membership import Membership
from common.index.points import IndexSpace
from common.index.publisher import IndexPublisher
from common.kv.block_key import BlockKey
from tests.support.valkey import (
    STRIDE,
    ClusterNode,
    eventually,
    evicted,
    fast_publisher,
    point_keys,
    running_cluster,
    settled,
    stored,
    worker_ref,
)

pytestmark = pytest.mark.asyncio

NUM_POINTS = 156  # of a prompt of 10,000 tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """One worker that holds one prompt, and one router."""

    nodes: list[ClusterNode]
    client: IndexClient
    space: IndexSpace
    lookup: IndexLookup
    publisher: IndexPublisher
    keys: list[BlockKey]

    async def depth(self) -> int:
        """Points that the worker is found to hold."""
        found = (await self.lookup.depth(self.keys)).depths.get(worker_ref("w"))
        return found.disk_points if found else 0

    def indices_on(self, node: int) -> list[int]:
        shards_per_node = self.space.num_shards // len(self.nodes)
        return [
            index
            for shard, indices in self.space.places(self.keys).items()
            for index in indices
            if shard // shards_per_node == node
        ]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ClusterNode]]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture
async def fleet(nodes: list[ClusterNode], request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    client = IndexClient.from_url(f"redis+cluster://127.0.0.1:{nodes[0].port}", timeout_s=2.0)
    space = IndexSpace(namespace=request.node.name[:64], index_stride=STRIDE, num_shards=client.num_shards)
    lookup, publisher = IndexLookup(client, space, deadline_s=0.5), fast_publisher(client, space, worker_ref("w"))
    lookup.start()
    publisher.start()
    keys = point_keys(NUM_POINTS)
    publisher.publish(stored(keys))
    await settled(publisher)
    yield Fleet(nodes=nodes, client=client, space=space, lookup=lookup, publisher=publisher, keys=keys)
    await publisher.stop()
    await lookup.stop()
    await client.close()


async def test_index_works_over_three_nodes(fleet: Fleet) -> None:
    assert await fleet.depth() == NUM_POINTS
    fleet.publisher.publish(evicted(fleet.keys, since=150))
    await settled(fleet.publisher)
    assert await fleet.depth() == 150
    assert await fleet.lookup.speculate(worker_ref("w"), fleet.keys, life_s=10.0)
    depth = (await fleet.lookup.depth(fleet.keys)).depths[worker_ref("w")]
    assert (depth.disk_points, depth.speculative_points) == (150, NUM_POINTS)

    restarted = fast_publisher(fleet.client, fleet.space, worker_ref("w", 2))
    restarted.start()
    await settled(restarted)
    assert (await fleet.lookup.depth(fleet.keys)).depths == {}
    fleet.publisher.publish(stored(fleet.keys))  # by the earlier life

    async def fenced() -> bool:
        return fleet.publisher.stats().fenced

    await eventually(fenced)
    assert (await fleet.lookup.depth(fleet.keys)).depths == {}
    restarted.publish(stored(fleet.keys[:7]))
    await settled(restarted)
    assert (await fleet.lookup.depth(fleet.keys)).depths[worker_ref("w", 2)].disk_points == 7
    await restarted.stop()


async def test_membership_lives_on_a_cluster(fleet: Fleet) -> None:
    membership = Membership(fleet.client, fleet.space)
    lease = membership.register(worker_ref("w"), b"payload", 5.0)
    has_come = False
    async for members in membership.watch(poll_s=0.02):
        if members:
            assert {member.worker for member in members.values()} == {worker_ref("w")}
            has_come = True
            await lease.release()
        elif has_come:
            break


async def test_nodes_share_the_load_of_one_prompt_that_all_requests_have(fleet: Fleet) -> None:
    rng = random.Random(1)
    patient = IndexLookup(fleet.client, fleet.space, deadline_s=30.0)  # a busy machine is no matter here
    before = [node.num_calls("hmget") for node in fleet.nodes]
    for _ in range(200):
        tail = [rng.randbytes(16) for _ in range(rng.randint(0, 16))]
        assert not (await patient.depth(fleet.keys + tail)).degraded
    calls = [node.num_calls("hmget") - earlier for node, earlier in zip(fleet.nodes, before, strict=True)]
    assert max(calls) <= 1.3 * sum(calls) / len(calls)
    points = [len(fleet.indices_on(node)) for node in range(3)]
    assert max(points) <= 1.3 * NUM_POINTS / 3


async def test_other_nodes_answer_in_time_while_one_hangs(fleet: Fleet) -> None:
    deepest = max(fleet.indices_on(0) + fleet.indices_on(1)) + 1
    with fleet.nodes[2].hung():
        depths = []
        for _ in range(16):
            depths.append(await fleet.depth())
            await asyncio.sleep(0.05)
        assert fleet.lookup.degraded
    assert depths.count(deepest) >= 12, depths


async def test_killed_node_costs_its_shards_until_it_is_back(fleet: Fleet) -> None:
    deepest = max(fleet.indices_on(0) + fleet.indices_on(1)) + 1
    fleet.nodes[2].kill()

    async def degraded() -> bool:
        return (await fleet.lookup.depth(fleet.keys)).degraded

    await eventually(degraded)
    depths = []
    for _ in range(40):
        depths.append(await fleet.depth())
        await asyncio.sleep(0.05)
    assert depths.count(deepest) >= 30, depths
    fleet.nodes[2].start()  # empty

    async def whole() -> bool:
        return not fleet.lookup.degraded and await fleet.depth() == NUM_POINTS

    await eventually(whole, timeout_s=20.0)
