"""The receiver's extra memory while a large transfer comes in over gRPC."""

from __future__ import annotations

from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.contenders import Contender


async def extra_resident_bytes(contender: Contender, child: SinkChild) -> int:
    """Peak of the receiving process above what it held before, of a transfer after others: the pool is not in it."""
    await contender.move()
    await child.ask("reset_peak")
    before = await child.ask("usage")
    await contender.move()
    after = await child.ask("usage")
    return int(after["peak_bytes"] - before["resident_bytes"])
