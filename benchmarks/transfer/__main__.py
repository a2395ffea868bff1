"""`python -m benchmarks.transfer`: the table of transports, with a verdict last."""

from __future__ import annotations

import argparse
import asyncio
import sys

from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.contenders import Contender, PlainSocket, Transport, Way
from benchmarks.transfer.pools import BLOCK_BYTES, make_pool
from benchmarks.transfer.rates import Measured, measure
from common.worker.malloc import keep_large_buffers
from common.worker.pool_blocks import PoolBlocks

RAW = Way(name="grpc, no checksum, no scatter", transport="grpc", checksum="none", discard=True)
GRPC = Way(name="grpc", transport="grpc")
SHARED_MEMORY = Way(name="shared memory", transport="shm")


async def main(num_mib: int, num_runs: int) -> int:
    keep_large_buffers()
    num_blocks = num_mib * 2**20 // BLOCK_BYTES
    ways = [RAW, GRPC, SHARED_MEMORY]
    blocks = PoolBlocks(make_pool(num_blocks, seed=0))
    child, port = await SinkChild.start(num_blocks, {way.name: way.sink_settings() for way in ways})
    transports = [Transport(way, blocks, num_blocks, child) for way in ways]
    contenders: list[Contender] = [PlainSocket(blocks, num_blocks, port), *transports]
    measured = await measure(contenders, child, num_bytes=num_blocks * BLOCK_BYTES, num_runs=num_runs)
    print_table(measured)
    for transport in transports:
        await transport.close()
    await child.stop()
    return 0


def print_table(measured: dict[str, Measured]) -> None:
    plain = measured[PlainSocket.name].rate
    print(f"{'transport':<32} {'GB/s':>6} {'of plain':>8}   CPU s/GB: source  sink")
    for one in measured.values():
        print(
            f"{one.name:<32} {one.rate / 1e9:>6.2f} {one.rate / plain:>8.2f}"
            f"   {one.cpu_s_per_gb(one.source_cpu_s):>16.2f} {one.cpu_s_per_gb(one.sink_cpu_s):>5.2f}"
            f"   [{' '.join(f'{one.num_bytes / s / 1e9:.2f}' for s in one.seconds)}]"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=256, help="MiB that one transfer moves")
    parser.add_argument("--runs", type=int, default=5, help="runs of each contender")
    arguments = parser.parse_args()
    sys.exit(asyncio.run(main(arguments.mib, arguments.runs)))
