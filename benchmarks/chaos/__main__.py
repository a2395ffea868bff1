"""`make chaos`: a line per round, the table of coverage, the verdict last; exit status 1 when anything was harmed."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.campaign import Campaign
from benchmarks.chaos.cell import STRIKES, Fault, Stage, Strike, Target
from benchmarks.chaos.coverage import Coverage
from benchmarks.chaos.fleet import FleetSpec
from benchmarks.chaos.fleets import demo_fleet, small_fleet
from benchmarks.chaos.report import Tally, tables, verdict_line
from benchmarks.chaos.small_model import save_small_model
from benchmarks.chaos.workload import DEMO_WORKLOAD, SMALL_WORKLOAD

LEAST_REQUESTS = 300
# With real weights the machinery is the same: a few faults show that the tokens are, too.
DEMO_STRIKES = (
    Strike(Fault.KILL, Target.PREFILL),
    Strike(Fault.KILL, Target.DECODE),
    Strike(Fault.FREEZE, Target.DECODE),
)
DEMO_STAGES = (Stage.MAPPED, Stage.SENDING, Stage.EARLY)
DEMO_S = 60.0
# What differs by transport is what becomes of the bytes when an end of it is gone.
SHM_STRIKES = (
    Strike(Fault.KILL, Target.PREFILL),
    Strike(Fault.KILL, Target.DECODE),
    Strike(Fault.FREEZE, Target.PREFILL),
    Strike(Fault.FREEZE, Target.DECODE),
    Strike(Fault.CUT, Target.LINK),
)
SHM_STAGES = (Stage.MAPPED, Stage.PREFILLING, Stage.EARLY)
SHM_S = 75.0
MAX_PASSES = 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the whole schedule follows from it")
    parser.add_argument("--strikes", default="", help="comma-separated, such as kill-decode,cut-link; default: all")
    parser.add_argument("--passes", type=int, default=MAX_PASSES, help="times that a fault is tried to meet each stage")
    parser.add_argument("--minutes", type=float, default=8.0, help="no round begins after so long")
    parser.add_argument(
        "--fleets",
        default="small,shm,demo",
        help="small: the whole table, over gRPC; shm: a few faults, KV in shared memory; demo: a few, SmolLM2",
    )
    options = parser.parse_args(arguments)
    names = [name for name in options.strikes.split(",") if name]
    unknown = set(names) - {str(strike) for strike in STRIKES}
    if unknown:
        parser.error(f"--strikes: {', '.join(sorted(unknown))}; there are {', '.join(map(str, STRIKES))}")
    chosen = [strike for strike in STRIKES if not names or str(strike) in names]
    started_s = time.monotonic()
    tally, coverage = Tally(), Coverage(())
    with tempfile.TemporaryDirectory(prefix="slipstream-chaos-model-") as folder:
        if "small" in options.fleets.split(","):
            campaign = Campaign(
                fleet=small_fleet(save_small_model(Path(folder))),
                workload=SMALL_WORKLOAD,
                seed=options.seed,
                strikes=chosen,
                max_passes=options.passes,
                max_s=options.minutes * 60,
            )
            coverage = asyncio.run(campaign.run(tally, _say))
        if "shm" in options.fleets.split(","):
            fleet = small_fleet(save_small_model(Path(folder)))
            asyncio.run(_shm_campaign(fleet, options.seed).run(tally, _say))
        if "demo" in options.fleets.split(","):
            asyncio.run(_demo_campaign(options.seed).run(tally, _say))
    print(tables(coverage, tally))
    line = verdict_line(tally, coverage.gaps, LEAST_REQUESTS, time.monotonic() - started_s)
    print(line)
    return 0 if line.startswith("UNHARMED") else 1


def _shm_campaign(fleet: FleetSpec, seed: int) -> Campaign:
    return Campaign(
        fleet=dataclasses.replace(
            fleet,
            kv_transports=("shm", "grpc"),
            prefill_engine=dataclasses.replace(fleet.prefill_engine, attention_backend="auto"),
            decode_engine=dataclasses.replace(fleet.decode_engine, attention_backend="auto"),
        ),
        workload=SMALL_WORKLOAD,
        seed=seed,
        strikes=SHM_STRIKES,
        stages=SHM_STAGES,
        max_passes=1,
        max_s=SHM_S,
    )


def _demo_campaign(seed: int) -> Campaign:
    return Campaign(
        fleet=demo_fleet(),
        workload=DEMO_WORKLOAD,
        seed=seed,
        strikes=DEMO_STRIKES,
        stages=DEMO_STAGES,
        max_passes=1,
        max_s=DEMO_S,
    )


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
