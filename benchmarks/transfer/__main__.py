"""`python -m benchmarks.transfer`: the table of transports, and what a prompt waits for; a verdict last.

Exits with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.util import find_spec

from benchmarks.pinning import own_cores, pin
from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.contenders import Contender, PlainSocket, Transport, Way
from benchmarks.transfer.memory import extra_resident_bytes
from benchmarks.transfer.overlap import NUM_CHUNKS, Overlap, measure_overlap, median, print_overlap, start_workers
from benchmarks.transfer.pools import BLOCK_BYTES, make_pool
from benchmarks.transfer.rates import Measured, measure
from common.heap import freeze_loaded
from common.worker.malloc import keep_large_buffers
from common.worker.pool_blocks import PoolBlocks

RAW = Way(name="grpc, no checksum, no scatter", transport="grpc", checksum="none", discard=True)
GRPC = Way(name="grpc", transport="grpc")
SHARED_MEMORY = Way(name="shared memory", transport="shm")
ISLAND = Way(name="island (gloo)", transport="island", settings=(("island", "benchmark"),))
NIXL = Way(name="nixl (UCX)", transport="nixl")

MIN_RAW_SHARE = 0.8
MIN_GRPC_SHARE = 0.65
MIN_SHARED_MEMORY_FACTOR = 2.0
MAX_EXTRA_BYTES = 64 * 2**20
MIN_EARLY_SHARE = 0.8


async def compare(num_mib: int, num_runs: int, num_starts: int) -> list[str]:
    """Prints the table. Returns the targets missed."""
    num_blocks = num_mib * 2**20 // BLOCK_BYTES
    ways = [RAW, GRPC, SHARED_MEMORY, ISLAND, *([NIXL] if find_spec("nixl") is not None else [])]
    blocks = PoolBlocks(make_pool(num_blocks, seed=0))
    measured = {name: Measured(name, num_blocks * BLOCK_BYTES) for name in (PlainSocket.name, *(w.name for w in ways))}
    # A core each, as the launcher gives workers; else the kernel moves their threads about, to no two runs alike.
    cores = own_cores()
    pin(os.getpid(), cores[:1])
    for _ in range(num_starts):
        child, port = await SinkChild.start(num_blocks, {way.name: way.sink_settings() for way in ways})
        child.pin(cores[-1:])
        transports = [Transport(way, blocks, num_blocks, child) for way in ways]
        contenders: list[Contender] = [PlainSocket(blocks, num_blocks, port), *transports]
        await measure(contenders, child, num_runs=num_runs, into=measured)
        for transport in transports:
            await transport.close()
        await child.stop()
    pin(os.getpid(), cores)
    print_table(measured)
    extra_bytes = await extra_resident_bytes(GRPC, blocks, num_blocks)
    print(f"grpc: the receiver's peak was {extra_bytes / 2**20:.1f} MiB above what it held, for {num_mib} MiB")
    base, grpc = measured[PlainSocket.name], measured[GRPC.name]
    shares = {
        f"grpc without checksum and scatter: {{:.2f}} of {MIN_RAW_SHARE} of a plain socket": (
            measured[RAW.name].share_of(base),
            MIN_RAW_SHARE,
        ),
        f"grpc: {{:.2f}} of {MIN_GRPC_SHARE} of a plain socket": (grpc.share_of(base), MIN_GRPC_SHARE),
        f"shared memory: {{:.2f}} of {MIN_SHARED_MEMORY_FACTOR} times grpc": (
            measured[SHARED_MEMORY.name].share_of(grpc),
            MIN_SHARED_MEMORY_FACTOR,
        ),
    }
    missed = [text.format(value) for text, (value, least) in shares.items() if value < least]
    if extra_bytes > MAX_EXTRA_BYTES:
        missed.append(f"receiver's memory: {extra_bytes / 2**20:.0f} MiB more, allowed are {MAX_EXTRA_BYTES // 2**20}")
    return missed


def print_table(measured: dict[str, Measured]) -> None:
    plain = measured[PlainSocket.name]
    print(f"{'transport':<30} {'GB/s':>6} {'of plain':>8}   CPU s/GB: source  sink   all runs, GB/s")
    for one in measured.values():
        print(
            f"{one.name:<30} {one.rate / 1e9:>6.2f} {one.share_of(plain):>8.2f}"
            f"   {one.cpu_s_per_gb(one.source_cpu_s):>16.2f} {one.cpu_s_per_gb(one.sink_cpu_s):>5.2f}"
            f"   {min(one.rates) / 1e9:.2f} to {max(one.rates) / 1e9:.2f}"
        )


def overlap(model: str, num_runs: int) -> list[str]:
    """Prints what prompts wait for. Returns the targets missed."""
    missed = []
    for transports in (("shm", "grpc"), ("grpc",)):
        with start_workers(model, transports) as cluster:
            print(f"real workers, {transports[0]}:")
            long: list[Overlap] = measure_overlap(cluster, NUM_CHUNKS, num_runs)
            print_overlap(long)
            print_overlap(measure_overlap(cluster, 1, num_runs))
        early = median(long, "early_share")
        if early < MIN_EARLY_SHARE:
            missed.append(f"{transports[0]}: {early:.0%} of {MIN_EARLY_SHARE:.0%} early")
    return missed


def main(arguments: argparse.Namespace) -> int:
    keep_large_buffers()
    freeze_loaded()  # as workers do
    missed = asyncio.run(compare(arguments.mib, arguments.runs, arguments.starts))
    if not arguments.no_workers:
        missed += overlap(arguments.model, arguments.prompts)
    print("MISSED: " + "; ".join(missed) if missed else "OK: every target of transfers is met")
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256, help="MiB that one transfer moves")
    parser.add_argument("--runs", type=int, default=5, help="runs of each transport after each start")
    parser.add_argument("--starts", type=int, default=3, help="times that the receiving process is started anew")
    parser.add_argument("--model", default="demo", help="model of the real workers")
    parser.add_argument("--prompts", type=int, default=3, help="prompts of each length on the real workers")
    parser.add_argument("--no-workers", action="store_true", help="only the table")
    sys.exit(main(parser.parse_args()))
