"""`make exactness`: one line per case, the verdict last; exit status 1 when anything differs."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence

from benchmarks.exactness.case import FleetSpec
from benchmarks.exactness.cases import FULL
from benchmarks.exactness.corpus import NUM_NEW_TOKENS
from benchmarks.exactness.lazy_reference_model import LazyReferenceModel
from benchmarks.exactness.runner import CaseResult, Runner
from benchmarks.exactness.workload import load_workload
from common.errors import SlipstreamError

MAX_FAULTS_SHOWN = 8


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exactness", description=__doc__)
    parser.add_argument("--fleets", default="", help="regular expression: only clusters whose name it matches whole")
    parser.add_argument("--list", action="store_true", help="only tell the cases")
    options = parser.parse_args(arguments)
    specs = [spec for spec in FULL if not options.fleets or re.fullmatch(options.fleets, spec.name)]
    if options.list:
        print("\n".join(f"{spec.name}: {case.name}" for spec in specs for case in spec.cases))
        return 0
    started_s = time.monotonic()
    workload = load_workload(num_new_tokens=NUM_NEW_TOKENS)
    runner = Runner(workload=workload, source=LazyReferenceModel(workload.model))
    results = []
    for spec in specs:
        for result in _run_fleet(runner, spec):
            _print_result(result)
            results.append(result)
    return _print_verdict(results, time.monotonic() - started_s)


def _run_fleet(runner: Runner, spec: FleetSpec) -> Iterator[CaseResult]:
    """A result per case; a case that raises, or a cluster that does not start, is a fault too."""
    left = list(spec.cases)
    try:
        with runner.fleet(spec) as fleet:
            for case in spec.cases:
                yield runner.run(fleet, spec, case)
                left.remove(case)
    except* (SlipstreamError, OSError, ValueError, AssertionError) as errors:
        text = "; ".join(f"{type(error).__name__}: {error}" for error in errors.exceptions)
        failed = [_failed(spec, case.name, text) for case in left]
    else:
        failed = []
    yield from failed


def _failed(spec: FleetSpec, case_name: str, text: str) -> CaseResult:
    return CaseResult(
        name=f"{spec.name}: {case_name}",
        num_prompts=0,
        num_tokens=0,
        ties=(),
        faults=(text,),
        path="",
        elapsed_s=0.0,
    )


def _print_result(result: CaseResult) -> None:
    word = "ok  " if result.passed else "FAIL"
    print(
        f"{word} {result.name}: {result.num_prompts} prompts, {result.num_tokens} tokens, {len(result.ties)} ties, "
        f"{result.elapsed_s:.1f} s; {result.path}",
        flush=True,
    )
    for line in (*map(str, result.ties), *result.faults[:MAX_FAULTS_SHOWN]):
        print(f"     {line}", flush=True)
    if len(result.faults) > MAX_FAULTS_SHOWN:
        print(f"     and {len(result.faults) - MAX_FAULTS_SHOWN} more", flush=True)


def _print_verdict(results: Sequence[CaseResult], elapsed_s: float) -> int:
    num_tokens = sum(result.num_tokens for result in results)
    num_ties = sum(len(result.ties) for result in results)
    failed = [result for result in results if not result.passed]
    print(f"{len(results)} cases, {num_tokens} tokens, {num_ties} ties, {elapsed_s / 60:.1f} minutes")
    if not results or failed:
        print(f"DIFFERENT: {len(failed)} of {len(results)} cases failed")
        return 1
    print("EXACT")
    return 0


if __name__ == "__main__":
    sys.exit(main())
