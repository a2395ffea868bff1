"""What a receiving process needs beside its pool while a large transfer comes in."""

from __future__ import annotations

from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.contenders import Transport, Way
from common.worker.pool_blocks import PoolBlocks

NUM_TRANSFERS = 2


async def extra_resident_bytes(way: Way, blocks: PoolBlocks, num_blocks: int) -> int:
    """Of a process that has received nothing before: its peak above what it held then, buffers that it keeps included.

    The pool is touched beforehand, so none of it is counted.
    """
    child, _ = await SinkChild.start(num_blocks, {way.name: way.sink_settings()})
    transport = Transport(way, blocks, num_blocks, child)
    await child.ask("reset_peak")
    before = await child.ask("usage")
    for _ in range(NUM_TRANSFERS):
        await transport.move()
    after = await child.ask("usage")
    await transport.close()
    await child.stop()
    return int(after["peak_bytes"] - before["resident_bytes"])
