"""`make overload`: finds what a fleet sustains, offers ten times that, and looks whether it comes back."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from benchmarks.overload.run import Plan, run, small_fleet
from slipstream.launcher import Cluster


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload (default: 60)")
    parser.add_argument("--factor", type=float, default=10.0, help="times the sustainable rate (default: 10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(small_fleet(Path(folder))) as cluster:
        plan = Plan(overload_s=options.seconds, factor=options.factor)
        report = asyncio.run(run(cluster, plan))
    print("\n".join(report.lines))
    print(f"FAILED: {'; '.join(report.faults)}" if report.faults else "PASSED")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
