"""What the prefix index costs: `make bench-index`. The verdict comes last.

Every lookup is timed in turn with an HMGET of as many keys on the same server; medians are compared.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher
from common.index.server import EmbeddedIndexServer
from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEvent, CacheEventKind
from common.request import WorkerId

STRIDE = 64
NUM_POINTS = 100_000
NUM_SHARED_POINTS = 20_000
NUM_OTHER_HOLDERS = 8
POINT_COUNTS = (16, 128, 2000)
ROUNDS = 400
NO_TIME_LIMIT_S = 10.0

# What a lookup of so many points may take: times an HMGET, and milliseconds.
MAX_RATIO = {128: 1.5}
MAX_MS = {2000: 3.0}
MAX_BUSIEST_OVER_MEAN = 1.3
MAX_POINT_BYTES = 100

Call = Callable[[], Awaitable[object]]


def stored(keys: Iterable[bytes]) -> Iterator[CacheEvent]:
    """Of so many prompts, the first point each."""
    return (CacheEvent(CacheEventKind.STORED, BlockKey(key), STRIDE) for key in keys)


async def main() -> int:
    misses: list[str] = []
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with EmbeddedIndexServer() as server:
        client = IndexClient.from_url(server.url)
        space = IndexSpace(namespace="bench", index_stride=STRIDE)
        keys = [os.urandom(16) for _ in range(NUM_POINTS)]
        publishers = await measure_writes(client, space, keys, misses)
        await measure_lookups(client, space, keys, misses)
        await measure_speculation(client, space)
        started_s = time.perf_counter()
        await publishers[0].stop()
        print(f"clean stop of {NUM_POINTS:,} points: {time.perf_counter() - started_s:.2f} s")
        for publisher in publishers[1:]:
            await publisher.stop()
        await client.close()
    measure_shards(misses)
    print("verdict: " + ("FAILED: " + "; ".join(misses) if misses else "passed"))
    return 1 if misses else 0


async def measure_writes(
    client: IndexClient, space: IndexSpace, keys: list[bytes], misses: list[str]
) -> list[IndexPublisher]:
    first = IndexPublisher(client, space, WorkerRef(WorkerId("w0"), 1))
    first.start()
    await settled(first)
    before = await used_bytes(client)
    started_s = time.perf_counter()
    first.publish(stored(keys))
    await settled(first)
    rate = NUM_POINTS / (time.perf_counter() - started_s)
    print(f"one worker tells {rate:,.0f} points/s")
    point_bytes = (await used_bytes(client) - before) / NUM_POINTS
    print(f"memory of a point's first holder: {point_bytes:.0f} bytes")
    if point_bytes > MAX_POINT_BYTES:
        misses.append(f"a point takes {point_bytes:.0f} bytes")
    before = await used_bytes(client)
    publishers = [first]
    for number in range(1, NUM_OTHER_HOLDERS + 1):
        other = IndexPublisher(client, space, WorkerRef(WorkerId(f"w{number}"), 1))
        other.start()
        other.publish(stored(keys[:NUM_SHARED_POINTS]))
        await settled(other)
        publishers.append(other)
    num_entries = NUM_OTHER_HOLDERS * NUM_SHARED_POINTS
    print(f"memory of each further holder: {(await used_bytes(client) - before) / num_entries:.0f} bytes")
    return publishers


async def measure_lookups(client: IndexClient, space: IndexSpace, keys: list[bytes], misses: list[str]) -> None:
    lookup = IndexLookup(client, space, deadline_s=NO_TIME_LIMIT_S)
    points = space.shards()[0].points
    for count in POINT_COUNTS:
        asked = {
            "one holder": keys[-count:],
            f"{NUM_OTHER_HOLDERS + 1} holders": keys[:count],
            "miss": [os.urandom(16) for _ in range(count)],
        }
        for name, some in asked.items():
            ours, bare = await medians_ms(call_depth(lookup, some), call_hmget(client, points, some))
            print(f"{count:5} points, {name:<10} lookup {ours:.2f} ms, HMGET {bare:.2f} ms, ratio {ours / bare:.2f}")
            if ours / bare > MAX_RATIO.get(count, float("inf")):
                misses.append(f"{count} points, {name}: {ours / bare:.2f} times an HMGET")
            if ours > MAX_MS.get(count, float("inf")):
                misses.append(f"{count} points, {name}: {ours:.2f} ms")


async def measure_speculation(client: IndexClient, space: IndexSpace) -> None:
    lookup = IndexLookup(client, space, deadline_s=NO_TIME_LIMIT_S)
    await lookup.depth([os.urandom(16)])  # learns the workers' slots
    times = []
    for _ in range(200):
        fresh = [os.urandom(16) for _ in range(128)]
        started_s = time.perf_counter()
        await lookup.speculate(WorkerRef(WorkerId("w0"), 1), fresh)
        times.append(1000 * (time.perf_counter() - started_s))
    print(f"speculation on 128 points: {statistics.median(times):.2f} ms")


def measure_shards(misses: list[str]) -> None:
    """Points asked of each of 12 shards, by requests that add up to 1,000 tokens of their own to a shared prompt."""
    space = IndexSpace(namespace="bench", index_stride=STRIDE, num_shards=12)
    for name, num_prompts, num_points in (
        ("64 system prompts of 2,000 tokens", 64, 31),
        ("one prompt of 10,000 tokens", 1, 156),
    ):
        ratios = []
        for seed in range(50):
            rng, load = random.Random(seed), Counter[int]()
            prompts = [[rng.randbytes(16) for _ in range(num_points)] for _ in range(num_prompts)]
            for _ in range(300):
                keys = rng.choice(prompts) + [rng.randbytes(16) for _ in range(rng.randint(0, 16))]
                load.update({shard: len(indices) for shard, indices in space.places(keys).items()})
            ratios.append(max(load.values()) * space.num_shards / load.total())
        ratios.sort()
        mean, nine_in_ten = statistics.fmean(ratios), ratios[44]
        print(f"busiest shard over mean, {name}: {mean:.2f} on average, 9 in 10 under {nine_in_ten:.2f}")
        if nine_in_ten > MAX_BUSIEST_OVER_MEAN:
            misses.append(f"{name}: the busiest shard has {nine_in_ten:.2f} times the mean")


def call_depth(lookup: IndexLookup, keys: list[bytes]) -> Call:
    return lambda: lookup.depth(keys)


def call_hmget(client: IndexClient, points: bytes, keys: list[bytes]) -> Call:
    return lambda: client.command(points, "HMGET", points, *keys)


async def medians_ms(first: Call, second: Call) -> tuple[float, float]:
    """Calls alternate, so that both see the same machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, seen in zip((first, second), times, strict=True):
            started_s = time.perf_counter()
            await call()
            seen.append(1000 * (time.perf_counter() - started_s))
    return statistics.median(times[0]), statistics.median(times[1])


async def used_bytes(client: IndexClient) -> int:
    await asyncio.sleep(0.3)  # the server frees its buffers a moment later
    return int((await client.command(b"x", "INFO", "memory"))["used_memory"])


async def settled(publisher: IndexPublisher) -> None:
    while publisher.stats().num_pending or not publisher.stats().connected:
        await asyncio.sleep(0.002)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
