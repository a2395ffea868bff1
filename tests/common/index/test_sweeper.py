from __future__ import annotations

import asyncio

import pytest

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.points import IndexSpace, Tier, encode_owner
from common.index.shard_writer import ShardWriter, WriterConfig
from common.index.sweeper import IndexSweeper, SweeperConfig
from tests.support.valkey import eventually, fast_publisher, point_keys, settled, stored, worker_ref

pytestmark = pytest.mark.asyncio

QUICK = SweeperConfig(interval_s=0.02, dead_after_s=0.3, slice_points=16, slice_interval_s=0.001)


async def test_silent_worker_is_retired_and_its_entries_go_in_slices(client: IndexClient, space: IndexSpace) -> None:
    keys, lookup = point_keys(200), IndexLookup(client, space, deadline_s=1.0)
    silent, alive = worker_ref("silent"), fast_publisher(client, space, worker_ref("alive"))
    alive.start()
    alive.publish(stored(keys))
    await settled(alive)
    for shard, shard_keys in enumerate(space.shards()):
        mine = [keys[index] for index in space.places(keys).get(shard, ())]
        owner = encode_owner(silent, 0)
        slot = await client.call("slipstream_register_v2", shard_keys.all(), b"silent", owner, 0, b"nonce---")
        await client.call("slipstream_publish_v2", shard_keys.all(slot), slot, owner, 1, len(mine), 0, 0, 0, *mine)
    assert (await lookup.depth(keys)).depths[silent].device_points == 200
    sweeping = asyncio.create_task(IndexSweeper(client, space, QUICK).run())

    async def cold() -> bool:
        return silent not in (await lookup.depth(keys)).depths

    async def gone() -> bool:
        left = [await client.command(shard.points, "SCARD", shard.reverse(1)) for shard in space.shards()]
        return not any(left)

    await eventually(cold)
    await eventually(gone)
    assert (await lookup.depth(keys)).depths[worker_ref("alive")].device_points == 200
    sweeping.cancel()
    await asyncio.gather(sweeping, return_exceptions=True)
    await alive.stop()


async def test_short_silence_wipes_nothing(client: IndexClient, space: IndexSpace) -> None:
    keys, worker = point_keys(10), worker_ref("w")
    writer = ShardWriter(client, space.shards()[0], worker, WriterConfig(first_delay_s=0.0, heartbeat_s=0.05))
    for key in keys:
        writer.store(key, Tier.DEVICE)
    running = asyncio.create_task(writer.run())
    sweeper = IndexSweeper(client, space, QUICK)

    async def told() -> bool:
        return writer.connected and not writer.num_pending

    await eventually(told)
    running.cancel()  # silent, and nobody sweeps: as if the server or the network had stopped for everybody
    await asyncio.gather(running, return_exceptions=True)
    await sweeper.sweep(space.shards()[0])
    await asyncio.sleep(0.4)
    await sweeper.sweep(space.shards()[0])
    assert await client.command(space.shards()[0].slots, "HGET", space.shards()[0].slots, "0") > b"L"


async def test_a_thousand_sweepers_ask_little_more_often_than_ten(client: IndexClient, space: IndexSpace) -> None:
    for shard in space.shards():
        for number in range(400):
            owner = encode_owner(worker_ref(f"w{number}"), 0)
            await client.call("slipstream_register_v2", shard.all(), f"w{number}", owner, 0, b"nonce---")
        assert await IndexSweeper(client, space, QUICK).sweep(shard) == 400
    config = SweeperConfig(interval_s=0.02)
    sweeping = [asyncio.create_task(IndexSweeper(client, space, config).run()) for _ in range(40)]
    await asyncio.sleep(0.2)  # they have learned how many they are
    before = await num_calls(client)
    await asyncio.sleep(1.0)
    # 1,600 per shard when each goes at its interval
    assert await num_calls(client) - before < 120 * space.num_shards
    for task in sweeping:
        task.cancel()
    await asyncio.gather(*sweeping, return_exceptions=True)


async def num_calls(client: IndexClient) -> int:
    """Of functions, since the server's start."""
    return int((await client.command(b"x", "INFO", "commandstats"))["cmdstat_fcall"]["calls"])
