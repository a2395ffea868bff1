"""Ten times the sustainable rate, for a short while; `make overload` does it for a minute, with stricter limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.overload.run import Plan, run, small_fleet
from slipstream.launcher import Cluster

# Other tests may run on the same cores, now and not a moment later: of rates, only a collapse is told from that.
PLAN = Plan(
    saturate_s=4.0,
    peak_s=3.0,
    overload_s=10.0,
    after_s=8.0,
    min_goodput_share=0.5,
    max_refusal_share=0.3,
    max_wasted=0.05,
)


def test_overload_is_refused_early_and_leaves_nothing(tmp_path: Path) -> None:
    with Cluster(small_fleet(tmp_path)) as cluster:
        report = asyncio.run(run(cluster, PLAN))
    print("\n".join(report.lines))
    assert report.faults == []
