"""What the router itself costs per request: `python -m benchmarks.plan_cost`.

Index lookup, plan and books for prompts of 128 points, with fleets of 8, 64 and 1,000 workers, a real Valkey, and the
router's own classes; then tokenising and block keys by prompt length. Fleets are measured by turns in one run, so that
they see the same machine. Prints a verdict last, and exits with 1 on a miss.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import random
import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks.index_cost import STRIDE, stored
from benchmarks.planned_fleet import PlannedFleet, planned_fleet
from benchmarks.tokenising_cost import print_tokenising_cost
from common.config import IndexConfig
from common.index.client import IndexClient
from common.index.points import IndexSpace, WorkerRef
from common.index.publisher import IndexPublisher
from common.index.server import EmbeddedIndexServer
from common.kv.block_key import BlockKey
from common.request import WorkerId

NUM_POINTS = 128
NUM_PROMPTS = 400
NUM_HELD_POINTS = 100
NUM_HOLDERS = 8
FLEET_SIZES = (8, 64, 1000)
ROUNDS = 1500
NUM_AT_ONCE = 16
GOAL_P50_MS = 1.0
GOAL_PER_S = 1500
GOAL_RATIO = 1.2


async def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_cost", description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print where the time goes with 64 workers")
    options = parser.parse_args(arguments)
    draw = random.Random(1)
    prompts = [[BlockKey(os.urandom(16)) for _ in range(NUM_POINTS)] for _ in range(NUM_PROMPTS)]
    with EmbeddedIndexServer() as server:
        config = IndexConfig(index_url=server.url, index_stride=STRIDE)
        fleets = {size: await planned_fleet(config, size, NUM_POINTS * STRIDE) for size in FLEET_SIZES}
        publishers = await _publish(config, prompts, draw)
        try:
            times = await _measure_by_turns(fleets, prompts)
            rates = {size: await _measure_rate(fleet, prompts) for size, fleet in fleets.items()}
            if options.profile:
                await _print_profile(fleets[64], prompts)
        finally:
            await asyncio.gather(*(publisher.stop() for publisher in publishers))
            await asyncio.gather(*(fleet.close() for fleet in fleets.values()))
    verdict = _print_verdict(times, rates)
    print_tokenising_cost()
    print("MET" if verdict else "MISSED")
    return 0 if verdict else 1


async def _publish(
    config: IndexConfig, prompts: Sequence[Sequence[BlockKey]], draw: random.Random
) -> list[IndexPublisher]:
    """Each prompt's beginning is held by two of a few workers, those that every fleet has."""
    assert config.index_url is not None
    client = IndexClient.from_url(config.index_url)
    space = IndexSpace(namespace=config.namespace, index_stride=STRIDE, num_shards=client.num_shards)
    held: dict[int, list[bytes]] = {holder: [] for holder in range(NUM_HOLDERS)}
    for prompt in prompts:
        for holder in draw.sample(range(NUM_HOLDERS), 2):
            held[holder] += prompt[:NUM_HELD_POINTS]
    publishers = []
    for holder, keys in held.items():
        publisher = IndexPublisher(client, space, WorkerRef(WorkerId(f"worker-{holder:04}"), 1))
        publisher.start()
        publisher.publish(stored(keys))
        publishers.append(publisher)
    while any(publisher.stats().num_pending or not publisher.stats().connected for publisher in publishers):
        await asyncio.sleep(0.01)
    return publishers


async def _measure_by_turns(
    fleets: dict[int, PlannedFleet], prompts: Sequence[Sequence[BlockKey]]
) -> dict[int, list[float]]:
    """Milliseconds per request, one at a time."""
    times: dict[int, list[float]] = {size: [] for size in fleets}
    for number in range(ROUNDS):
        for size, fleet in fleets.items():
            started_s = time.perf_counter()
            await fleet.plan_one(prompts[number % NUM_PROMPTS])
            times[size].append(1000 * (time.perf_counter() - started_s))
    return times


async def _measure_rate(fleet: PlannedFleet, prompts: Sequence[Sequence[BlockKey]]) -> tuple[float, float]:
    """Requests per second of wall clock with several at once, and per second of this process's own CPU."""
    left = iter(range(ROUNDS * 2))

    async def work() -> None:
        for number in left:
            await fleet.plan_one(prompts[number % NUM_PROMPTS])

    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(NUM_AT_ONCE)))
    return ROUNDS * 2 / (time.perf_counter() - wall_s), ROUNDS * 2 / (time.process_time() - cpu_s)


async def _print_profile(fleet: PlannedFleet, prompts: Sequence[Sequence[BlockKey]]) -> None:
    profile = cProfile.Profile()
    profile.enable()
    for number in range(ROUNDS):
        await fleet.plan_one(prompts[number % NUM_PROMPTS])
    profile.disable()
    pstats.Stats(profile).sort_stats("tottime").print_stats(20)


def _print_verdict(times: dict[int, list[float]], rates: dict[int, tuple[float, float]]) -> bool:
    medians = {}
    for size, seen in times.items():
        medians[size] = statistics.median(seen)
        p99 = statistics.quantiles(seen, n=100)[98]
        wall, cpu = rates[size]
        print(
            f"{size:5} workers: lookup + plan p50 {medians[size]:.3f} ms, p99 {p99:.3f} ms; "
            f"{wall:,.0f} requests/s by the clock, {cpu:,.0f} by this core's own time"
        )
    smallest, largest = medians[FLEET_SIZES[0]], medians[FLEET_SIZES[-1]]
    ratio = largest / smallest
    print(f"p50 at {FLEET_SIZES[-1]} workers is {ratio:.2f} times that at {FLEET_SIZES[0]} (goal {GOAL_RATIO})")
    print(f"goals with 64 workers: p50 under {GOAL_P50_MS} ms, at least {GOAL_PER_S:,} requests/s on one core")
    return medians[64] < GOAL_P50_MS and rates[64][1] >= GOAL_PER_S and ratio <= GOAL_RATIO


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
