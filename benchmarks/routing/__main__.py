"""`make bench-routing`: the tables, then what is met, then a verdict; exit status 1 on a miss."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.routing.live import run_live
from benchmarks.routing.mapping import judge_mapping
from benchmarks.routing.replayed import OURS, Claim, Traffic, judge_faults, judge_hits, judge_latency
from slipstream.simulator.policies import COMPARED_POLICY_NAMES

MOONCAKE_SHA256 = "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df"
REPLAYED = {"hits": judge_hits, "latency": judge_latency, "faults": judge_faults, "mapping": judge_mapping}
PARTS = (*REPLAYED, "live")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routing", description=__doc__)
    parser.add_argument("--trace", required=True, help="the Mooncake conversation trace; README.md says where it is")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--live-rounds", type=int, default=2, help="runs of each policy on real processes")
    parser.add_argument("--seeds", default="0", help="of the simulated runs, with commas between: medians are judged")
    parser.add_argument("--policies", default=",".join(COMPARED_POLICY_NAMES), help="that latency is compared with")
    options = parser.parse_args(arguments)
    parts = _listed(parser, "--parts", options.parts, PARTS)
    policies = _listed(parser, "--policies", options.policies, COMPARED_POLICY_NAMES)
    if not Path(options.trace).is_file():
        parser.error(f"--trace: {options.trace} is no file")
    if hashlib.sha256(Path(options.trace).read_bytes()).hexdigest() != MOONCAKE_SHA256:
        print(f"{options.trace} is another trace than the one that the goals were set for", file=sys.stderr)
    claims: list[Claim] = []
    traffic = Traffic(
        trace=options.trace,
        seeds=_seeds(parser, options.seeds),
        policies=tuple(dict.fromkeys((OURS, *policies))),
    )
    for part, judge in REPLAYED.items():
        if part in parts:
            claims += judge(traffic)
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


def _listed(parser: argparse.ArgumentParser, name: str, text: str, known: Sequence[str]) -> list[str]:
    given = text.split(",")
    for one in given:
        if one not in known:
            parser.error(f"{name}: must be of {', '.join(known)}, is {one!r}")
    return given


def _seeds(parser: argparse.ArgumentParser, text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        parser.error(f"--seeds: must be whole numbers with commas between, is {text!r}")


if __name__ == "__main__":
    sys.exit(main())
