"""Runs the contenders in turns and keeps what each took."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.contenders import Contender


@dataclass(slots=True)
class Measured:
    """One contender's runs: seconds on the clock, and of CPU of both processes."""

    name: str
    num_bytes: int
    seconds: list[float] = field(default_factory=list)
    source_cpu_s: list[float] = field(default_factory=list)
    sink_cpu_s: list[float] = field(default_factory=list)

    @property
    def rates(self) -> list[float]:
        """Bytes per second of each run."""
        return [self.num_bytes / seconds for seconds in self.seconds]

    @property
    def rate(self) -> float:
        """Bytes per second, of the median run."""
        return statistics.median(self.rates)

    def share_of(self, other: Measured) -> float:
        """Its rate in the other's, round by round: the median."""
        return statistics.median(theirs / own for own, theirs in zip(self.seconds, other.seconds, strict=True))

    def cpu_s_per_gb(self, seconds: Sequence[float]) -> float:
        return statistics.median(seconds) * 1e9 / self.num_bytes


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(
    contenders: Sequence[Contender], child: SinkChild, *, num_runs: int, into: Mapping[str, Measured]
) -> None:
    """In turns, so that what else the machine does meets all alike; one round before, which does not count."""
    for round_index in range(num_runs + 1):
        for one in contenders:
            sink_before = (await child.ask("usage"))["cpu_s"]
            source_before = _own_cpu_s()
            started = time.perf_counter()
            await one.move()
            elapsed = time.perf_counter() - started
            source_cpu = _own_cpu_s() - source_before
            sink_cpu = (await child.ask("usage"))["cpu_s"] - sink_before
            if round_index:
                measured = into[one.name]
                measured.seconds.append(elapsed)
                measured.source_cpu_s.append(source_cpu)
                measured.sink_cpu_s.append(sink_cpu)
