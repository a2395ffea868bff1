"""The results as tables of text: medians by contender, ratios to the best peer, and the targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.speed.contenders import IN_PROCESS, OURS
from benchmarks.speed.other_load import MAX_OTHER_CORES
from benchmarks.speed.results import Results
from benchmarks.speed.targets import Judged, advantage, judge
from benchmarks.speed.workload import Workload

NOTHING = "-"
VERDICTS = {True: "met", False: "MISSED", None: "not said by this"}
Row = Sequence[str]


def medians(results: Results, workloads: Sequence[Workload]) -> list[Row]:
    """A head, then a row for each number of each workload; the last column says how ours does against the best peer."""
    names = [one.name for one in results.takers]
    rows: list[Row] = [("", "measured", *names, "ours / best peer")]
    for workload in workloads:
        for measure, kind in workload.measures.items():
            values = [results.median(workload.name, name, measure) for name in names]
            if all(value is None for value in values):
                continue
            ours = [name for name in OURS if results.median(workload.name, name, measure) is not None]
            first = IN_PROCESS if IN_PROCESS in ours else next(iter(ours), IN_PROCESS)
            ratio = advantage(results, workload.name, measure, first, kind.higher_is_better)
            rows.append((workload.name, kind.unit, *map(_number, values), _number(ratio)))
    return rows


def verdicts(results: Results) -> list[Row]:
    """A head, then a row for each target."""
    return [("target", "found", "wanted", ""), *map(_verdict, judge(results))]


def limit_lines(results: Results) -> list[str]:
    read_1, read, gemm = (results.limit(name) for name in ("read_gb_per_s_1", "read_gb_per_s", "gemm_gf_per_s"))
    num_disturbed, num_runs = results.num_disturbed()
    return [
        f"memory read: {_number(read)} GB/s, {_number(read_1)} with one thread",
        f"bf16 GEMM, 256 rows or more: {_number(gemm)} GF/s",
        f"runs beside which other processes used over {MAX_OTHER_CORES} cores: {num_disturbed} of {num_runs}",
    ]


def aligned(rows: Sequence[Row]) -> Iterator[str]:
    """For a terminal."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    head, *body = rows
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in body:
        yield f"| {' | '.join(row)} |"


def _verdict(one: Judged) -> Row:
    sign = "≥" if one.at_least else "≤"
    return (one.about, f"{one.found:.2f}", f"{sign} {one.wanted:.2f}", VERDICTS[one.met])


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
