"""What the prefix index costs: `python -m benchmarks.index_cost`.

Every lookup is timed in turn with an HMGET of as many keys on the same server; medians are compared.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher
from common.index.server import EmbeddedIndexServer
from common.request import WorkerId

STRIDE = 64
NUM_POINTS = 100_000
NUM_SHARED_POINTS = 20_000
NUM_OTHER_HOLDERS = 8
POINT_COUNTS = (16, 128, 2000)
ROUNDS = 400
NO_TIME_LIMIT_S = 10.0

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A cache event."""

    key: bytes
    kind: str = "stored"
    num_tokens: int = STRIDE


async def main() -> None:
    with EmbeddedIndexServer() as server:
        client = IndexClient.from_url(server.url)
        space = IndexSpace(namespace="bench", index_stride=STRIDE)
        keys = [os.urandom(16) for _ in range(NUM_POINTS)]
        publishers = await measure_writes(client, space, keys)
        await measure_lookups(client, space, keys)
        await measure_speculation(client, space)
        started_s = time.perf_counter()
        await publishers[0].stop()
        print(f"clean stop of {NUM_POINTS:,} points: {time.perf_counter() - started_s:.2f} s")
        await asyncio.gather(*(publisher.stop() for publisher in publishers[1:]))
        await client.close()


async def measure_writes(client: IndexClient, space: IndexSpace, keys: list[bytes]) -> list[IndexPublisher]:
    first = IndexPublisher(client, space, WorkerRef(WorkerId("w0"), 1))
    first.start()
    await settled(first)
    before = await used_bytes(client)
    started_s = time.perf_counter()
    first.publish(Stored(key=key) for key in keys)
    await settled(first)
    rate = NUM_POINTS / (time.perf_counter() - started_s)
    print(f"one worker tells {rate:,.0f} points/s")
    print(f"memory of a point's first holder: {(await used_bytes(client) - before) / NUM_POINTS:.0f} bytes")
    before = await used_bytes(client)
    publishers = [first]
    for number in range(1, NUM_OTHER_HOLDERS + 1):
        other = IndexPublisher(client, space, WorkerRef(WorkerId(f"w{number}"), 1))
        other.start()
        other.publish(Stored(key=key) for key in keys[:NUM_SHARED_POINTS])
        await settled(other)
        publishers.append(other)
    num_entries = NUM_OTHER_HOLDERS * NUM_SHARED_POINTS
    print(f"memory of each further holder: {(await used_bytes(client) - before) / num_entries:.0f} bytes")
    return publishers


async def measure_lookups(client: IndexClient, space: IndexSpace, keys: list[bytes]) -> None:
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


async def measure_speculation(client: IndexClient, space: IndexSpace) -> None:
    lookup = IndexLookup(client, space, deadline_s=NO_TIME_LIMIT_S)
    fresh = [os.urandom(16) for _ in range(128)]
    await lookup.depth(fresh)  # learns the workers' slots
    started_s = time.perf_counter()
    for _ in range(200):
        await lookup.speculate(WorkerRef(WorkerId("w0"), 1), fresh)
    print(f"speculation on 128 points: {1000 * (time.perf_counter() - started_s) / 200:.2f} ms")


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
    asyncio.run(main())
