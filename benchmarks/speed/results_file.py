"""Writes RESULTS.md: date, machine, commit, versions, limits, the tables, and who could not be had."""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from benchmarks.speed.results import Results
from benchmarks.speed.table import limit_lines, markdown, medians, verdicts
from benchmarks.speed.workload import Workload

BEGIN, END = "<!-- begin: python -m benchmarks.speed -->", "<!-- end: python -m benchmarks.speed -->"
TITLE = "# Results\n\nWhat is between the marks is written by `make bench-peers`; notes stand below them.\n\n"


def write_results_file(path: Path, results: Results, workloads: Sequence[Workload]) -> None:
    """Replaces what is between the marks, and keeps all else."""
    old = path.read_text(encoding="utf-8") if path.exists() else f"{TITLE}{BEGIN}\n{END}\n"
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n".join(_body(results, workloads))
    path.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def _body(results: Results, workloads: Sequence[Workload]) -> Iterator[str]:
    yield f"{datetime.date.today().isoformat()}, commit {_commit()}, {_machine()}."
    yield ""
    yield "SmolLM2-135M-Instruct in bf16, greedy, fixed lengths; medians of alternating runs. Limits in the same run:"
    yield ""
    yield from (f"- {line}" for line in limit_lines(results))
    yield ""
    yield from (f"- {one.name}: {one.version}" for one in results.takers)
    yield from (f"- {name}: not there: {' '.join(why.split())}" for name, why in results.missing.items())
    yield ""
    yield from (f"- {one.name}. {one.about}" for one in workloads if one.name in results.runs)
    yield ""
    yield from markdown(medians(results, workloads))
    yield ""
    yield from markdown(verdicts(results))
    for workload, faults in results.faults.items():
        yield from (f"- {workload}, {name}: failed: {' '.join(why.split())}" for name, why in faults.items())


def _commit() -> str:
    folder = Path(__file__).parent
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _machine() -> str:
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = {name: re.search(rf"^{name}\s*: (.*)$", told, re.MULTILINE) for name in ("model name", "cpu family")}
    kind = ", family ".join(match[1] for match in fields.values() if match)
    features = [name for name in ("avx512_bf16", "avx512f", "avx2") if re.search(rf"\b{name}\b", told)]
    cores = len(os.sched_getaffinity(0))
    memory_gib = psutil.virtual_memory().total / 2**30
    return f"{kind} ({features[0] if features else 'no AVX2'}), {cores} cores, {memory_gib:.0f} GiB"
