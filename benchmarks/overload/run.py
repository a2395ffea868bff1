"""The phases of one run, and what must hold of them."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.overload.gauges import Gauges
from benchmarks.overload.load import LoadGenerator, Offered, Workload
from benchmarks.random_model import save_random_model
from common.config import DType, EngineConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

SEED = 5
# Rates at which the peak is looked for, in parts of what callers get who ask again at once.
PEAK_PARTS = (0.8, 1.0, 1.25, 1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Seconds of each phase, and the limits that the verdict is about."""

    workload: Workload = field(default_factory=Workload)
    num_callers: int = 24
    saturate_s: float = 10.0
    peak_s: float = 10.0
    overload_s: float = 60.0
    factor: float = 10.0
    deadline_factor: float = 2.0
    after_s: float = 10.0
    normal_after_s: float = 5.0
    min_goodput_share: float = 0.9
    max_refusal_share: float = 0.1  # of the deadline
    max_wasted: float = 0.01  # share of all requests
    max_growth_mib: float = 64.0


@dataclass(slots=True)
class Report:
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def check(self, holds: bool, what: str) -> None:
        self.lines.append(f"{'ok  ' if holds else 'MISS'} {what}")
        if not holds:
            self.faults.append(what)


def small_fleet(folder: Path) -> ClusterConfig:
    """One prefill and one decode worker of a model so small that two cores do, and so large that they are the limit."""
    engine = EngineConfig(
        model=str(save_random_model(folder, hidden_size=384, num_layers=4)),
        dtype=DType.FLOAT32,
        kv_memory="256MiB",
        num_threads=1,
        max_num_seqs=16,
        max_num_batched_tokens=256,
    )
    return ClusterConfig(engine=engine, grpc_port=0, http_port=0, max_local_prefill_tokens=0)


async def run(cluster: Cluster, plan: Plan) -> Report:
    report = Report()
    load = LoadGenerator(cluster.grpc_addresses, plan.workload, SEED)
    try:
        await load.saturate(plan.num_callers, plan.saturate_s / 2)  # workers learn the times of their steps
        saturated = await load.saturate(plan.num_callers, plan.saturate_s)
        sustained, typical_s = saturated.goodput, statistics.median(one.took_s for one in saturated.outcomes)
        load.workload = replace(plan.workload, deadline_s=plan.deadline_factor * typical_s)
        report.lines.append(
            f"{plan.num_callers} callers get {sustained:.1f} answers/s, {typical_s:.2f} s each; "
            f"the deadline from now on: {load.workload.deadline_s:.2f} s"
        )
        peak = 0.0
        for part in PEAK_PARTS:
            phase = await load.offer(sustained * part, plan.peak_s)
            peak = max(peak, phase.goodput)
            report.lines.append(_line(f"{part:g} of {sustained:.1f}/s", phase))
        gauges = Gauges(cluster)
        before = await gauges.read()
        overload = await load.offer(sustained * plan.factor, plan.overload_s)
        ended_s = time.monotonic()
        readings = list(gauges.readings)
        after = await load.offer(sustained * 0.5, plan.after_s)
        await asyncio.sleep(1.0)
        last = await gauges.read()
        await gauges.close()
    finally:
        await load.close()
    report.lines.append(_line(f"{plan.factor:g} times", overload))
    report.lines.append(_line("half, afterwards", after))
    share = overload.goodput / peak if peak else 0.0
    report.check(share >= plan.min_goodput_share, f"goodput under overload is {share:.0%} of its peak")
    p50_s, p99_s = overload.refusal_s(0.5), overload.refusal_s(0.99)
    early = p99_s <= plan.max_refusal_share * load.workload.deadline_s
    report.check(early, f"refused after {p50_s * 1000:.0f} ms, p99 {p99_s * 1000:.0f} ms")
    others = set(overload.statuses) - {"answered", "RESOURCE_EXHAUSTED"}
    wasted = sum(overload.statuses[status] for status in others) / len(overload.outcomes)
    report.check(wasted <= plan.max_wasted, f"{wasted:.1%} ended otherwise than answered or refused")
    half = len(readings) // 2
    for name in before.rss_mib:
        # The first seconds fill queues and caches; afterwards nothing may grow.
        growth = max(one.rss_mib[name] for one in readings[half:]) - max(
            one.rss_mib[name] for one in readings[: half + 1]
        )
        report.check(growth <= plan.max_growth_mib, f"{name} grew by {growth:.0f} MiB in the second half")
    report.lines.append(
        f"     at the router at most {max(one.num_at_router for one in readings)} requests, "
        f"reservations at most {max(one.num_reservations for one in readings)}"
    )
    settled = after.after(max(0.0, plan.normal_after_s - (after.began_s - ended_s)))
    num_bad = sum(not after.is_good(one) for one in settled)
    report.check(num_bad == 0, f"{num_bad} of {len(settled)} requests fail from {plan.normal_after_s:g} s after it on")
    left = (last.num_at_router, last.num_at_workers, last.num_reservations, last.num_used_blocks)
    report.check(not any(left), f"held at the end: {left}")
    return report


def _line(name: str, phase: Offered) -> str:
    late_s = max((one.late_s for one in phase.outcomes), default=0.0)
    return (
        f"{name:<20} offered {phase.offered_per_s:6.1f}/s, good {phase.goodput:6.2f}/s, "
        f"{dict(phase.statuses)}, sent late by {late_s * 1000:.0f} ms at most"
    )
