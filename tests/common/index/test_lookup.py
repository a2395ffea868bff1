from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from common.index.client import IndexClient
from common.index.lookup import IndexLookup, LookupResult
from common.index.points import IndexSpace
from common.index.server import EmbeddedIndexConfig, EmbeddedIndexServer
from tests.support.valkey import (
    STRIDE,
    eventually,
    fast_publisher,
    point_keys,
    settled,
    stored,
    worker_ref,
)

pytestmark = pytest.mark.asyncio


async def test_depth_is_told_for_each_worker(client: IndexClient, space: IndexSpace, lookup: IndexLookup) -> None:
    keys = point_keys(200)
    publishers = {n: fast_publisher(client, space, worker_ref(f"w{n}")) for n in (1, 50, 199, 200)}
    for count, publisher in publishers.items():
        publisher.start()
        publisher.publish(stored(keys[:count]))
    await settled(*publishers.values())
    result = await lookup.depth(keys)
    assert {w.worker_id: d.device_points for w, d in result.depths.items()} == {
        "w1": 1,
        "w50": 50,
        "w199": 199,
        "w200": 200,
    }
    assert (result.num_points, result.degraded) == (200, False)
    for publisher in publishers.values():
        await publisher.stop()


async def test_a_changed_slot_table_is_read_once_for_all_who_ask(own_client: IndexClient, space: IndexSpace) -> None:
    lookup, keys, worker = IndexLookup(own_client, space, deadline_s=5.0), point_keys(100), worker_ref("w")
    publisher = fast_publisher(own_client, space, worker)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)

    async def num_reads() -> int:
        return int((await own_client.command(b"x", "INFO", "commandstats"))["cmdstat_hgetall"]["calls"])

    async def ask_together() -> list[LookupResult]:
        return await asyncio.gather(*(lookup.depth(keys) for _ in range(20)))

    await ask_together()  # each has its connection now
    before = await num_reads()
    other = fast_publisher(own_client, space, worker_ref("other"))
    other.start()
    await settled(other)
    assert all(result.depths[worker].device_points == 100 for result in await ask_together())
    # a shard's second read is for those who were answered while the first was under way
    assert await num_reads() - before <= 2 * space.num_shards
    await publisher.stop()
    await other.stop()


async def test_prompt_without_points_is_no_question(lookup: IndexLookup) -> None:
    result = await lookup.depth([])
    assert (dict(result.depths), result.degraded) == ({}, False)


async def test_namespaces_are_apart(client: IndexClient, space: IndexSpace, lookup: IndexLookup) -> None:
    other = IndexSpace(namespace=space.namespace + "-other", index_stride=STRIDE, num_shards=space.num_shards)
    publisher, keys = fast_publisher(client, other, worker_ref("w")), point_keys(10)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)
    assert (await lookup.depth(keys)).depths == {}
    assert len((await IndexLookup(client, other, deadline_s=1.0).depth(keys)).depths) == 1
    await publisher.stop()


async def test_speculation_is_seen_by_other_routers_and_ends(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    publisher, keys, worker = fast_publisher(client, space, worker_ref("w")), point_keys(20), worker_ref("w")
    publisher.start()
    publisher.publish(stored(keys[:5]))
    await settled(publisher)
    other = IndexLookup(client, space, deadline_s=1.0)
    await lookup.depth(keys)
    assert await lookup.speculate(worker, keys, life_s=0.3)
    depth = (await other.depth(keys)).depths[worker]
    assert (depth.disk_points, depth.speculative_points) == (5, 20)
    publisher.publish(stored(keys[:8]))  # the worker has come so far

    async def ended() -> bool:
        depth = (await other.depth(keys)).depths[worker]
        return (depth.disk_points, depth.speculative_points) == (8, 8)

    await eventually(ended)
    await publisher.stop()


async def test_renewed_speculation_lives_on(client: IndexClient, space: IndexSpace, lookup: IndexLookup) -> None:
    publisher, keys, worker = fast_publisher(client, space, worker_ref("w")), point_keys(4), worker_ref("w")
    publisher.start()
    await settled(publisher)
    await lookup.depth(keys)
    assert await lookup.speculate(worker, keys, life_s=0.2)
    assert await lookup.speculate(worker, keys, life_s=10.0)
    await asyncio.sleep(0.8)
    assert (await lookup.depth(keys)).depths[worker].speculative_points == 4
    await publisher.stop()


async def test_speculation_about_a_past_life_has_no_effect(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    old, keys = fast_publisher(client, space, worker_ref("w", 1)), point_keys(4)
    old.start()
    await settled(old)
    await lookup.depth(keys)
    new = fast_publisher(client, space, worker_ref("w", 2))
    new.start()
    await settled(new)
    assert not await lookup.speculate(worker_ref("w", 1), keys)
    assert (await lookup.depth(keys)).depths == {}
    await old.stop()
    await new.stop()


async def test_killed_server_degrades_the_lookup_and_its_return_heals_it(space: IndexSpace) -> None:
    with EmbeddedIndexServer() as server:
        port = int(server.url.rsplit(":", 1)[1])
        client = IndexClient.from_url(server.url, timeout_s=0.5)
        publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(10)
        lookup = IndexLookup(client, space, deadline_s=0.5)
        lookup.start()
        publisher.start()
        publisher.publish(stored(keys))
        await settled(publisher)
        assert len((await lookup.depth(keys)).depths) == 1
        assert (lookup.num_degraded_shards, lookup.degraded_s, publisher.stats().away_s) == (0, 0.0, 0.0)
        os.kill(server.pid, signal.SIGKILL)

        async def is_degraded() -> bool:
            return lookup.degraded  # noticed without a lookup

        await eventually(is_degraded)
        result = await lookup.depth(keys)
        assert (dict(result.depths), result.degraded) == ({}, True)

        async def all_shards_away() -> bool:
            return lookup.num_degraded_shards == publisher.stats().num_away_shards == space.num_shards

        await eventually(all_shards_away)
        assert lookup.degraded_s > 0.0
        assert publisher.stats().away_s > 0.0
        assert not await lookup.speculate(worker_ref("w"), keys)
    with EmbeddedIndexServer(EmbeddedIndexConfig(port=port)):

        async def healed() -> bool:
            result = await lookup.depth(keys)
            return not result.degraded and len(result.depths) == 1

        await eventually(healed)
        await settled(publisher)
        assert (lookup.num_degraded_shards, lookup.degraded_s) == (0, 0.0)
        assert (publisher.stats().num_away_shards, publisher.stats().away_s) == (0, 0.0)
        await publisher.stop()
        await lookup.stop()
    await client.close()


async def test_server_that_hangs_costs_no_more_than_the_deadline(
    own_server: EmbeddedIndexServer, own_client: IndexClient, space: IndexSpace
) -> None:
    deadline_s, num_lookups = 0.05, 50
    lookup = IndexLookup(own_client, space, deadline_s=deadline_s)
    keys = point_keys(50)
    await lookup.depth(keys)
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        results = [await lookup.depth(keys) for _ in range(num_lookups)]
        assert all(result.degraded for result in results)
        # One deadline, then the shard is left alone for a while.
        assert time.monotonic() - started < num_lookups * deadline_s / 2
    finally:
        os.kill(own_server.pid, signal.SIGCONT)

    async def healed() -> bool:
        return not (await lookup.depth(keys)).degraded

    await eventually(healed)
