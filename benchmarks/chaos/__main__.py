"""`make chaos`: a line per round, the table of coverage, the verdict last; exit status 1 when anything was harmed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.campaign import Campaign
from benchmarks.chaos.cell import STRIKES
from benchmarks.chaos.fleets import small_fleet
from benchmarks.chaos.report import tables, verdict_line
from benchmarks.chaos.small_model import save_small_model
from benchmarks.chaos.workload import SMALL_SIZES

LEAST_REQUESTS = 300
MAX_PASSES = 4


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the whole schedule follows from it")
    parser.add_argument("--strikes", default="", help="comma-separated, such as kill-decode,cut-link; default: all")
    parser.add_argument("--passes", type=int, default=MAX_PASSES, help="times that a fault is tried to meet each stage")
    parser.add_argument("--minutes", type=float, default=8.0, help="no round begins after so long")
    options = parser.parse_args(arguments)
    names = [name for name in options.strikes.split(",") if name]
    unknown = set(names) - {str(strike) for strike in STRIKES}
    if unknown:
        parser.error(f"--strikes: {', '.join(sorted(unknown))}; there are {', '.join(map(str, STRIKES))}")
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="slipstream-chaos-model-") as folder:
        campaign = Campaign(
            fleet=small_fleet(save_small_model(Path(folder))),
            sizes=SMALL_SIZES,
            seed=options.seed,
            strikes=[strike for strike in STRIKES if not names or str(strike) in names],
            max_passes=options.passes,
            max_s=options.minutes * 60,
        )
        coverage, tally = asyncio.run(campaign.run(lambda line: print(line, flush=True)))
    print(tables(coverage, tally))
    line = verdict_line(tally, coverage.gaps, LEAST_REQUESTS, time.monotonic() - started_s)
    print(line)
    return 0 if line.startswith("UNHARMED") else 1


if __name__ == "__main__":
    sys.exit(main())
