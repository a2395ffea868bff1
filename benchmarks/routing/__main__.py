"""`make bench-routing`: the tables, then what is met, then a verdict; exit status 1 on a miss."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.routing.live import run_live
from benchmarks.routing.replayed import Claim, judge_faults, judge_hits, judge_latency

MOONCAKE_SHA256 = "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"
PARTS = ("hits", "latency", "faults", "live")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--trace", required=True, help="the Mooncake conversation trace; README.md says where it is")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--live-rounds", type=int, default=2, help="runs of each policy on real processes")
    options = parser.parse_args(arguments)
    parts = options.parts.split(",")
    if not Path(options.trace).is_file():
        parser.error(f"--trace: {options.trace} is no file")
    if hashlib.sha256(Path(options.trace).read_bytes()).hexdigest() != MOONCAKE_SHA256:
        print(f"{options.trace} is another trace than the one that the goals were set for", file=sys.stderr)
    claims: list[Claim] = []
    for part, judge in (("hits", judge_hits), ("latency", judge_latency), ("faults", judge_faults)):
        if part in parts:
            claims += judge(options.trace)
    if "live" in parts:
        claims.append(
            Claim(
                text="real processes: tokens reused as the index foretold",
                met=run_live(("prefix_aware", "round_robin"), options.live_rounds),
            )
        )
    print()
    for claim in claims:
        print(f"{'ok  ' if claim.met else 'MISS'} {claim.text}")
    missed = sum(not claim.met for claim in claims)
    print(f"{len(claims) - missed} of {len(claims)} met" if missed else "ALL MET")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
