"""What a soak saw, and whether it is good enough."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.index_soak.asker import Lookup, Lookups
from benchmarks.index_soak.fleet import WriteLag

MAX_WRITE_LAG_S = 1.0
MAX_LOOKUP_S = 0.020
MAX_GROWTH = 0.05  # of memory, from the second quarter to the last
DEATH_WINDOW_S = 60.0  # the silent are retired after 30 s, and cleared after that


@dataclass(slots=True, kw_only=True)
class Soak:
    """Owner: the main process."""

    lags: list[WriteLag] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)
    num_hits: int = 0
    num_degraded: int = 0
    memory_bytes: dict[str, list[int]] = field(default_factory=dict)
    cpu_share: dict[str, float] = field(default_factory=dict)
    longest_command: str = ""

    def take(self, news: object) -> None:
        if isinstance(news, WriteLag):
            self.lags.append(news)
        elif isinstance(news, Lookups):
            self.lookups += news.times
            self.num_hits += news.num_hits
            self.num_degraded += news.num_degraded


def print_report(soak: Soak) -> bool:
    """The verdict comes last. True when all is well."""
    misses = [*_judge_lags(soak), *_judge_lookups(soak), *_judge_memory(soak)]
    for name, share in soak.cpu_share.items():
        print(f"{name + ' CPU':<22} {share:.2f} cores")
    print(f"longest command        {soak.longest_command}")
    print("verdict: " + ("FAILED: " + "; ".join(misses) if misses else "passed"))
    return not misses


def _judge_lags(soak: Soak) -> Iterator[str]:
    for name, seconds in (
        ("stored", [lag.stored_s for lag in soak.lags]),
        ("evicted", [lag.evicted_s for lag in soak.lags]),
    ):
        p99 = _percentile(seconds, 0.99)
        print(f"write lag, {name:<11} {_row(seconds)} ({len(seconds):,} probes)")
        if not p99 <= MAX_WRITE_LAG_S:
            yield f"write lag p99 is {p99:.2f} s"


def _judge_lookups(soak: Soak) -> Iterator[str]:
    near = [
        lookup
        for lookup in soak.lookups
        if any(death <= lookup.began + lookup.took and lookup.began <= death + DEATH_WINDOW_S for death in soak.deaths)
    ]
    # What the machine takes from everybody is not the index's doing: waits for a core, and whatever holds up a server
    # that has nothing else to do.
    ours = [max(0.0, lookup.took - max(lookup.waited, lookup.control)) for lookup in near]
    print(f"lookups, all           {_row([lookup.took for lookup in soak.lookups])} ({len(soak.lookups):,})")
    print(f"  hits {soak.num_hits / len(soak.lookups):.1%}, degraded {soak.num_degraded}")
    print(f"  around mass deaths   {_row([lookup.took for lookup in near])} ({len(soak.deaths)} deaths)")
    print(f"  of an idle server    {_row([lookup.control for lookup in near])}")
    print(f"  beyond the machine's {_row(ours)}")
    for lookup, excess in zip(near, ours, strict=True):
        if excess > MAX_LOOKUP_S:
            death = max(death for death in soak.deaths if death <= lookup.began + lookup.took)
            print(
                f"    {lookup.began - death:.2f} s after a death: {1000 * lookup.took:.0f} ms, "
                f"waited {1000 * lookup.waited:.0f}, idle server {1000 * lookup.control:.0f}"
            )
    if not soak.deaths:
        yield "nobody died: give it more seconds"
    elif max(ours) > MAX_LOOKUP_S:
        yield f"{sum(took > MAX_LOOKUP_S for took in ours)} lookups took over 20 ms around mass deaths"
    if soak.num_degraded:
        yield f"{soak.num_degraded} lookups were degraded"


def _judge_memory(soak: Soak) -> Iterator[str]:
    for name, sizes in soak.memory_bytes.items():
        quarter = max(1, len(sizes) // 4)
        early, late = statistics.fmean(sizes[quarter : 2 * quarter]), statistics.fmean(sizes[-quarter:])
        growth = late / early - 1
        print(f"{name:<22} {early / 1e6:.1f} MB in the second quarter, {late / 1e6:.1f} in the last ({growth:+.1%})")
        if growth > MAX_GROWTH:
            yield f"{name} grew by {growth:.1%}"


def _row(seconds: Sequence[float]) -> str:
    values = ", ".join(
        f"{name} {1000 * _percentile(seconds, share):.1f}"
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
    )
    return f"{values} ms"


def _percentile(values: Sequence[float], share: float) -> float:
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
