"""The phases of one run, and what must hold of them."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.overload.gauges import Gauges, Reading
from benchmarks.overload.load import LoadGenerator, Offered, Workload
from benchmarks.pinning import own_cores, pin
from benchmarks.random_model import save_random_model
from common.config import DType, EngineConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

SEED = 5
# Rates at which the peak is looked for, in parts of what callers get who ask again at once.
PEAK_PARTS = (1.0, 1.25)


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


def part(cluster: Cluster) -> str:
    """Workers get the first half of the cores, whoever asks and routes the others, as on machines of their own: what
    refusing costs the router is not taken from the workers then. What it has done, for people."""
    cores = own_cores()
    if len(cores) < 2:
        return "one core for all: what refusing costs is taken from the workers"
    workers, others = cores[: len(cores) // 2], cores[len(cores) // 2 :]
    for worker in cluster.workers:
        pin(cluster.child(worker.id).pid, workers)
    for pid in (os.getpid(), *(cluster.child(name).pid for name in cluster.router_names)):
        pin(pid, others)
    return f"cores: {len(workers)} for the workers, {len(others)} for the router and those who ask"


class Run:
    """One run over a fleet that is up. Owned by one event loop."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._plan = plan
        self.report = Report()
        self.report.lines.append(part(cluster))
        self._load = LoadGenerator(cluster.grpc_addresses, plan.workload, SEED)
        self._gauges = Gauges(cluster)
        self._skip_s = 0.0

    async def run(self) -> Report:
        plan, report = self._plan, self.report
        sustained = await self._calibrate()
        peak = max([await self._goodput(sustained, part) for part in PEAK_PARTS])
        before = await self._gauges.read()
        self._gauges.readings.clear()
        overload = await self._offer(sustained, plan.factor, plan.overload_s)
        ended_s = time.monotonic()
        readings = list(self._gauges.readings)
        after = await self._offer(sustained, 0.5, plan.after_s)
        await asyncio.sleep(1.0)
        last = await self._gauges.read()
        # A machine that does other things too is not as fast all the time.
        peak = (peak + await self._goodput(sustained, PEAK_PARTS[-1])) / 2
        self._judge_overload(overload, peak)
        self._judge_growth(before, readings)
        settled = after.after(max(0.0, plan.normal_after_s - (after.began_s - ended_s)))
        num_bad = sum(not after.is_good(one) for one in settled)
        told = f"{num_bad} of {len(settled)} requests fail from {plan.normal_after_s:g} s after it on"
        report.check(bool(settled) and num_bad == 0, told)
        left = (last.num_at_router, last.num_at_workers, last.num_reservations, last.num_used_blocks)
        report.check(not any(left), f"requests, reservations and blocks that are held at the end: {left}")
        return report

    async def close(self) -> None:
        await self._gauges.close()
        await self._load.close()

    async def _calibrate(self) -> float:
        """Answers per second that the fleet sustains; the deadline is set by what one takes then."""
        plan, load = self._plan, self._load
        await load.saturate(plan.num_callers, plan.saturate_s / 2)  # workers learn the times of their steps
        saturated = await load.saturate(plan.num_callers, plan.saturate_s)
        self._skip_s = statistics.median(one.took_s for one in saturated.outcomes)
        load.workload = replace(plan.workload, deadline_s=plan.deadline_factor * self._skip_s)
        sustained = sum(not one.status for one in saturated.outcomes) / saturated.seconds
        self.report.lines.append(
            f"{plan.num_callers} callers get {sustained:.1f} answers/s, {self._skip_s:.2f} s each; "
            f"the deadline from now on: {load.workload.deadline_s:.2f} s"
        )
        return sustained

    async def _goodput(self, sustained: float, part: float) -> float:
        # Long enough for a queue to show.
        phase = await self._offer(sustained, part, self._skip_s + max(self._plan.peak_s, 2 * self._skip_s))
        return phase.goodput(self._skip_s)

    async def _offer(self, sustained: float, part: float, seconds: float) -> Offered:
        cpu_s = self._gauges.cpu_s()
        phase = await self._load.offer(sustained * part, seconds)
        spent = {kind: used_s - cpu_s[kind] for kind, used_s in self._gauges.cpu_s().items()}
        good_per_cpu_s = sum(map(phase.is_good, phase.outcomes)) / max(spent["workers"], 1e-9)
        self.report.lines.append(
            f"{part:g} times: offered {phase.offered_per_s:.1f}/s, good {phase.goodput(self._skip_s):.2f}/s "
            f"({good_per_cpu_s:.2f} per CPU second of the workers), {dict(phase.statuses)}; CPU seconds: "
            f"workers {spent['workers']:.1f}, router {spent['routers']:.1f}, load generator {spent['self']:.1f}"
        )
        return phase

    def _judge_overload(self, overload: Offered, peak: float) -> None:
        plan, report = self._plan, self.report
        share = overload.goodput(self._skip_s) / peak if peak else 0.0
        report.check(share >= plan.min_goodput_share, f"goodput under overload is {share:.0%} of its peak")
        p50_s, p99_s = overload.refusal_s(0.5), overload.refusal_s(0.99)
        early = p99_s <= plan.max_refusal_share * overload.workload.deadline_s
        report.check(early, f"refused after {p50_s * 1000:.0f} ms, p99 {p99_s * 1000:.0f} ms")
        num_wasted = sum(one.status not in ("", "RESOURCE_EXHAUSTED") for one in overload.outcomes)
        wasted = num_wasted / len(overload.outcomes)
        report.check(wasted <= plan.max_wasted, f"{wasted:.1%} ended otherwise than answered or refused")

    def _judge_growth(self, before: Reading, readings: list[Reading]) -> None:
        half = len(readings) // 2
        for name in before.rss_mib:
            # The first seconds fill queues and caches; afterwards nothing may grow.
            rss_mib = [one.rss_mib[name] for one in readings]
            growth_mib = max(rss_mib[half:]) - max(rss_mib[: half + 1])
            told = f"{name} grew by {growth_mib:.0f} MiB in the second half"
            self.report.check(growth_mib <= self._plan.max_growth_mib, told)
        self.report.lines.append(
            f"     at the router at most {max(one.num_at_router for one in readings)} requests, "
            f"reservations at most {max(one.num_reservations for one in readings)}"
        )


async def run(cluster: Cluster, plan: Plan) -> Report:
    cores = own_cores()
    one = Run(cluster, plan)
    try:
        return await one.run()
    finally:
        pin(os.getpid(), cores)
        await one.close()
