from __future__ import annotations

import asyncio
import os
import random
import signal

import pytest
from redis import Redis

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.points import IndexSpace, Tier, WorkerRef, decode_value
from common.index.publisher import IndexPublisher, PublisherConfig
from common.index.server import MIB, EmbeddedIndexConfig, EmbeddedIndexServer
from common.index.shard_writer import WriterConfig
from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEvent, CacheEventKind
from tests.support.valkey import (
    FAST,
    cleared,
    eventually,
    evicted,
    fast_publisher,
    first_points,
    point_keys,
    settled,
    stored,
    worker_ref,
)

pytestmark = pytest.mark.asyncio


async def depth(lookup: IndexLookup, keys: list[BlockKey], worker: WorkerRef) -> int:
    result = await lookup.depth(keys)
    assert not result.degraded
    return result.depths[worker].disk_points if worker in result.depths else 0


async def num_entries(client: IndexClient, space: IndexSpace) -> int:
    """Points in the server, of live and retired slots alike."""
    counts = [await client.command(keys.points, "HLEN", keys.points) for keys in space.shards()]
    return sum(max(0, count - 1) for count in counts)  # one field is the version


async def test_stored_points_are_found_and_evicted_ones_are_not(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(20)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)
    assert await depth(lookup, keys, worker_ref("w")) == 20
    publisher.publish(evicted(keys, since=12))
    await settled(publisher)
    assert await depth(lookup, keys, worker_ref("w")) == 12
    await publisher.stop()
    assert await depth(lookup, keys, worker_ref("w")) == 0
    assert await num_entries(client, space) == 0


async def test_order_within_a_batch_decides(client: IndexClient, space: IndexSpace, lookup: IndexLookup) -> None:
    publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(2)
    publisher.start()
    publisher.publish([*stored(keys), *evicted(keys, since=1), *stored(keys), *evicted(keys, since=1)])
    await settled(publisher)
    assert await depth(lookup, keys, worker_ref("w")) == 1
    publisher.publish([*evicted(keys[:1]), *stored(keys)])
    await settled(publisher)
    assert await depth(lookup, keys, worker_ref("w")) == 2
    await publisher.stop()


async def test_rest_of_a_burst_waits_for_no_heartbeat(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    config = PublisherConfig(writer=WriterConfig(max_batch_points=8, heartbeat_s=60.0))
    publisher, keys = IndexPublisher(client, space, worker_ref("w"), config), point_keys(100)
    publisher.start()
    await settled(publisher)
    publisher.publish(stored(keys))
    await settled(publisher)
    assert await depth(lookup, keys, worker_ref("w")) == 100
    await publisher.stop()


async def test_only_points_of_the_stride_are_published(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(8)
    publisher.publish(CacheEvent(CacheEventKind.STORED, key, 16 * (i + 1)) for i, key in enumerate(keys))
    assert len(publisher) == 2
    publisher.start()
    await settled(publisher)
    assert await depth(lookup, space.point_keys(keys, 16), worker_ref("w")) == 2
    await publisher.stop()


async def test_clearing_is_cold_at_once_and_what_follows_counts(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(30)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)
    publisher.publish([*cleared(), *stored(keys[:4])])

    async def shallow() -> bool:
        return await depth(lookup, keys, worker_ref("w")) == 4

    await eventually(shallow)
    await publisher.stop()


async def test_tier_of_a_point_can_change(client: IndexClient, space: IndexSpace, lookup: IndexLookup) -> None:
    publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(6)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)
    publisher.publish(stored(keys)[3:], tier=Tier.HOST)
    await settled(publisher)
    found = (await lookup.depth(keys)).depths[worker_ref("w")]
    assert (found.device_points, found.host_points) == (3, 6)
    await publisher.stop()


async def test_restarted_worker_is_cold_at_once_and_fences_its_past(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    old, keys = fast_publisher(client, space, worker_ref("w", 1)), point_keys(20)
    old.start()
    old.publish(stored(keys))
    await settled(old)
    new = fast_publisher(client, space, worker_ref("w", 2))
    new.start()
    await settled(new)
    assert (await lookup.depth(keys)).depths == {}
    late = point_keys(20)
    old.publish(stored(late))

    async def fenced() -> bool:
        return old.stats().fenced

    await eventually(fenced)
    await asyncio.sleep(0.1)
    assert (await lookup.depth(late)).depths == {}
    new.publish(stored(keys[:5]))
    await settled(new)
    assert await depth(lookup, keys, worker_ref("w", 2)) == 5
    await old.stop()
    assert await depth(lookup, keys, worker_ref("w", 2)) == 5
    await new.stop()


async def test_limit_of_a_worker_keeps_what_is_there(
    client: IndexClient, space: IndexSpace, lookup: IndexLookup
) -> None:
    publisher = IndexPublisher(client, space, worker_ref("w"), PublisherConfig(max_points=10, writer=FAST.writer))
    publisher.start()
    first, second = point_keys(8), point_keys(8)
    publisher.publish(stored(first))
    publisher.publish(stored(second))
    await settled(publisher)
    assert (len(publisher), publisher.stats().num_dropped) == (10, 6)
    assert await depth(lookup, second, worker_ref("w")) == 2
    publisher.publish(evicted(first))
    publisher.publish(stored(second))
    await settled(publisher)
    assert await depth(lookup, second, worker_ref("w")) == 8
    await publisher.stop()


async def test_many_workers_on_one_point(client: IndexClient, lookup: IndexLookup, space: IndexSpace) -> None:
    keys = point_keys(3)
    workers = [worker_ref(f"w{i}", i) for i in range(40)]
    publishers = [fast_publisher(client, space, worker) for worker in workers]
    random.Random(1).shuffle(publishers)
    for publisher in publishers:
        publisher.start()
        publisher.publish(stored(keys))
    await settled(*publishers)
    shard = space.shards()[space.shard_of(keys[0], 0)]
    value = await client.command(shard.points, "HGET", shard.points, keys[0])
    assert len(value) == 80
    assert list(decode_value(value)) == sorted(decode_value(value))
    assert set((await lookup.depth(keys)).depths) == set(workers)
    for publisher in publishers[::2]:
        publisher.publish(evicted(keys))
    await settled(*publishers)
    assert len(await client.command(shard.points, "HGET", shard.points, keys[0])) == 40
    await asyncio.gather(*(publisher.stop() for publisher in publishers))
    assert await num_entries(client, space) == 0


async def test_flushed_server_is_filled_again(
    own_server: EmbeddedIndexServer, own_client: IndexClient, space: IndexSpace
) -> None:
    publisher, keys = fast_publisher(own_client, space, worker_ref("w")), point_keys(30)
    lookup = IndexLookup(own_client, space, deadline_s=1.0)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)
    with Redis.from_url(own_server.url) as redis:
        redis.flushall()

    async def full() -> bool:
        return await depth(lookup, keys, worker_ref("w")) == 30

    await eventually(full)
    await publisher.stop()


async def test_lost_entries_are_noticed_and_told_again(
    own_server: EmbeddedIndexServer, own_client: IndexClient, space: IndexSpace
) -> None:
    publisher, keys = fast_publisher(own_client, space, worker_ref("w")), point_keys(30)
    lookup = IndexLookup(own_client, space, deadline_s=1.0)
    publisher.start()
    publisher.publish(stored(keys))
    await settled(publisher)
    with Redis.from_url(own_server.url) as redis:
        for shard in space.shards():  # as after a failover to a replica that lagged
            some = redis.smembers(shard.reverse(0))
            redis.hdel(shard.points, *some)
            redis.srem(shard.reverse(0), *some)

    async def full() -> bool:
        return await depth(lookup, keys, worker_ref("w")) == 30

    await eventually(full)
    await publisher.stop()


async def test_server_that_is_away_is_filled_when_it_returns(space: IndexSpace) -> None:
    with EmbeddedIndexServer() as server:
        port = int(server.url.rsplit(":", 1)[1])
    client = IndexClient.from_url(f"redis://127.0.0.1:{port}", timeout_s=0.5)
    publisher, keys = fast_publisher(client, space, worker_ref("w")), point_keys(30)
    lookup = IndexLookup(client, space, deadline_s=1.0)
    publisher.start()
    publisher.publish(stored(keys))
    await asyncio.sleep(0.2)
    assert not publisher.stats().connected
    for _ in range(2):  # never there, then killed and empty
        with EmbeddedIndexServer(EmbeddedIndexConfig(port=port)) as server:

            async def full() -> bool:
                result = await lookup.depth(keys)
                return worker_ref("w") in result.depths and result.depths[worker_ref("w")].disk_points == 30

            await eventually(full)
            os.kill(server.pid, signal.SIGKILL)
        publisher.publish(evicted(keys, since=25))
        publisher.publish(stored(keys))
    await publisher.stop()
    await client.close()


async def test_full_server_takes_evictions_and_drops_the_rest(space: IndexSpace) -> None:
    with EmbeddedIndexServer(EmbeddedIndexConfig(max_memory_bytes=8 * MIB)) as server:
        client = IndexClient.from_url(server.url)
        publisher, lookup = fast_publisher(client, space, worker_ref("w")), IndexLookup(client, space, deadline_s=1.0)
        publisher.start()
        keys = point_keys(100)
        publisher.publish(stored(keys))
        await settled(publisher)
        with Redis.from_url(server.url) as redis:
            redis.config_set("maxmemory", 1)
        more = point_keys(100)
        publisher.publish([*evicted(keys, since=50), *stored(more)])
        await settled(publisher)
        assert publisher.stats().num_dropped == 100
        assert await depth(lookup, keys, worker_ref("w")) == 50
        assert len(publisher) == 50
        await publisher.stop()
        await client.close()


@pytest.mark.parametrize("seed", range(2))
async def test_random_events_restarts_and_flushes_end_in_the_truth(
    own_server: EmbeddedIndexServer, own_client: IndexClient, space: IndexSpace, seed: int
) -> None:
    rng = random.Random(seed)
    lookup = IndexLookup(own_client, space, deadline_s=1.0)
    keys = point_keys(40)
    publishers = {name: fast_publisher(own_client, space, worker_ref(name)) for name in ("a", "b", "c")}
    truth: dict[str, set[bytes]] = {name: set() for name in publishers}
    for publisher in publishers.values():
        publisher.start()
    with Redis.from_url(own_server.url) as redis:
        for step in range(150):
            name = rng.choice("abc")
            chosen = rng.sample(keys, rng.randint(1, 10))
            action = rng.choices(("store", "evict", "clear", "restart", "flush", "wait"), (40, 30, 3, 2, 1, 24))[0]
            if action == "store":
                publishers[name].publish(first_points(CacheEventKind.STORED, chosen))
                truth[name].update(chosen)
            elif action == "evict":
                publishers[name].publish(first_points(CacheEventKind.EVICTED, chosen))
                truth[name].difference_update(chosen)
            elif action == "clear":
                publishers[name].publish(cleared())
                truth[name].clear()
            elif action == "restart":
                if rng.random() < 0.5:
                    await publishers[name].stop()
                publishers[f"{name} of {step}"] = publishers[name]
                publishers[name] = fast_publisher(own_client, space, worker_ref(name, step + 2))
                publishers[name].start()
                await settled(publishers[name])
                truth[name].clear()
            elif action == "flush":
                redis.flushall()
            else:
                await asyncio.sleep(rng.random() * 0.02)

    async def true() -> bool:
        for key in keys:
            found = {worker.worker_id for worker in (await lookup.depth([key])).depths}
            if found != {name for name, held in truth.items() if key in held}:
                return False
        return True

    await eventually(true)
    await asyncio.gather(*(publisher.stop() for publisher in publishers.values()))
    lookup.start()  # it sweeps

    async def empty() -> bool:
        return await num_entries(own_client, space) == 0

    await eventually(empty)
    await lookup.stop()
