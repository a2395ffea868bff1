"""`make bench`: this engine and the machine's limits. `make bench-peers`: beside its peers. A table and a verdict."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.comparison import Comparison
from benchmarks.speed.contenders import OURS, PEERS, make_contender
from benchmarks.speed.model_size import model_size
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.results import ModelSize, Results, read_results
from benchmarks.speed.results_file import write_results_file
from benchmarks.speed.served.footprint import Footprint
from benchmarks.speed.served.goodput import Goodput
from benchmarks.speed.served.interference import Interference
from benchmarks.speed.served.router_cost import RouterCost
from benchmarks.speed.table import aligned, limit_lines, medians, verdicts
from benchmarks.speed.targets import judge
from benchmarks.speed.workload import BATCH_WORKLOADS, Workload
from common.checkpoint import resolve_model
from common.config import DType

QUICK = "a,b1,b8,b32,c1024,c2048,d,e,router"
TRACE = "../shared/data/traces/azure_conv_2023.csv"
MAKE_TIMEOUT_S = 3600.0
MIB = 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    model = resolve_model(options.model)
    size = model_size(model)
    known = all_workloads(options.trace, size)
    workloads = [one for one in known if one.name in options.workloads.split(",") or options.workloads == "all"]
    results = Results(model=size)
    for path in options.merge:
        results.take_in(read_results(path))
    if options.engines:
        new = Results(model=size)
        _compare(options, model, workloads, new)
        results.take_in(new)
    print("\n".join(limit_lines(results)))
    print("\n".join(aligned(medians(results, known))))
    print("\n".join(aligned(verdicts(results))))
    if not options.trace.exists() and {"i", "all"} & set(options.workloads.split(",")):
        print(f"i is not there: no {options.trace}; --trace names the Azure trace of 2023 (docs/simulator.md)")
    for name, why in results.missing.items():
        print(f"{name} is not there: {why}")
    _keep(options.json, results)
    if options.write:
        write_results_file(options.write, results, known)
    return _verdict(results)


def all_workloads(trace: Path, size: ModelSize) -> list[Workload]:
    """Workload i is left out where its trace is not there."""
    goodput = [Goodput(trace=trace)] if trace.exists() else []
    footprint = Footprint(weight_mib=size.weight_bytes / MIB)
    return [*BATCH_WORKLOADS, Interference(), *goodput, RouterCost(), footprint]


def _compare(options: argparse.Namespace, model: Path, workloads: Sequence[Workload], results: Results) -> None:
    names = [*OURS, *PEERS] if options.engines == "all" else options.engines.split(",")
    num_threads = len(os.sched_getaffinity(0))
    with asyncio.Runner() as runner:
        contenders = [
            make_contender(
                name,
                model,
                runner=runner,
                num_threads=num_threads,
                make_timeout_s=options.make_timeout,
                dtype=DType(options.dtype),
            )
            for name in names
        ]
        Comparison(
            contenders,
            workloads,
            Prompts(model),
            results,
            num_threads=num_threads,
            repeats=options.repeats,
            keep=lambda new: _keep(options.json, new),
        ).run()


def _keep(path: Path | None, results: Results) -> None:
    """A run that is stopped leaves what it has measured."""
    if path is not None:
        path.write_text(results.to_json(), encoding="utf-8")


def _verdict(results: Results) -> int:
    missed = [one.about for one in judge(results) if one.met is False]
    faults = [f"{workload} failed on {name}" for workload, told in results.faults.items() for name in told]
    print(f"MISSED: {'; '.join(missed + faults)}" if missed or faults else "OK: every target that was measured is met")
    return 1 if missed or faults else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--workloads", default=QUICK, help=f"names with commas between, or all (default: {QUICK})")
    parser.add_argument(
        "--engines",
        default=",".join(OURS),
        help=f"of {', '.join((*OURS, *PEERS))}, or all; empty: only what --merge reads (default: ours)",
    )
    parser.add_argument("--repeats", type=int, default=1, help="runs of each workload on each engine, alternating")
    parser.add_argument("--model", default="demo", help="model of all engines (llama.cpp has the demo model alone)")
    parser.add_argument("--dtype", default="bfloat16", help="of our engine; peers compute in bf16")
    parser.add_argument("--trace", type=Path, default=Path(TRACE), help=f"lengths of workload i (default: {TRACE})")
    parser.add_argument("--json", type=Path, help="file for every run's numbers")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="such files of earlier runs, to go in first")
    parser.add_argument("--write", type=Path, help="RESULTS.md to be written anew between its marks")
    parser.add_argument(
        "--make-timeout",
        type=float,
        default=MAKE_TIMEOUT_S,
        help="seconds for each step of making a peer's folder",
    )
    return parser


if __name__ == "__main__":
    # As an exception, it closes the contenders, which have processes of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
