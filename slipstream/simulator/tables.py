"""The command's tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table

from slipstream.simulator.capacity_plan import Trial
from slipstream.simulator.experiment import Run
from slipstream.simulator.offered_load import OfferedLoad
from slipstream.simulator.report import Figures

COLUMNS = (
    ("policy", ""),
    ("hit rate", "hit_rate"),
    ("busiest", "busiest_over_mean"),
    ("TTFT mean", "ttft_mean_s"),
    ("p50", "ttft_p50_s"),
    ("p90", "ttft_p90_s"),
    ("p95", "ttft_p95_s"),
    ("p99", "ttft_p99_s"),
    ("TPOT mean", "tpot_mean_s"),
    ("p50", "tpot_p50_s"),
    ("p95", "tpot_p95_s"),
    ("p99", "tpot_p99_s"),
    ("E2E mean", "e2e_mean_s"),
    ("p95", "e2e_p95_s"),
    ("p99", "e2e_p99_s"),
    ("good", "goodput_share"),
    ("good/s", "goodput_requests_per_s"),
    ("prefill", "prefill_utilization"),
    ("decode", "decode_utilization"),
    ("waiting KV", "decode_waiting_share"),
    ("sent", "transferred_bytes"),
    ("refused", "num_refusals"),
)
SHARES = ("hit_rate", "goodput_share", "prefill_utilization", "decode_utilization", "decode_waiting_share")


def comparison_table(runs: Sequence[Run]) -> Table:
    """One row per policy. TTFT and E2E in seconds, TPOT in milliseconds."""
    table = Table(box=box.SIMPLE)
    for title, _ in COLUMNS:
        table.add_column(title, justify="left" if title == "policy" else "right", no_wrap=True)
    for run in runs:
        table.add_row(run.policy, *(_cell(run.figures, name) for _, name in COLUMNS[1:]))
    return table


def traffic_line(offered: OfferedLoad, num_prefill: int) -> str:
    """What was asked for."""
    return (
        f"{offered.num_requests:,} requests in {offered.duration_s:,.0f} s, "
        f"{offered.num_tokens / offered.num_requests:,.0f} tokens in and "
        f"{offered.num_new_tokens / offered.num_requests:,.0f} out on average; highest possible hit rate "
        f"{offered.hit_rate:.1%}, which would keep {num_prefill} prefill workers "
        f"{offered.utilization(num_prefill):.0%} busy"
    )


def plan_table(trials: Sequence[Trial], best: Trial) -> Table:
    """What was tried, the cheapest first."""
    table = Table("prefill", "decode", "cost", "meets the SLO", "", box=box.SIMPLE)
    for trial in sorted(trials, key=lambda one: (one.cost, one.num_prefill)):
        attained = "less" if trial.attained is None else f"{trial.attained:.1%}"
        table.add_row(
            str(trial.num_prefill),
            str(trial.num_decode),
            f"{trial.cost:g}",
            attained,
            "<- cheapest" if trial is best else "",
        )
    return table


def _cell(figures: Figures, name: str) -> str:
    value = figures.get(name)
    if value is None:
        return "-"
    if name in SHARES:
        return f"{value:.1%}"
    if name.startswith("tpot"):
        return f"{value * 1000:.1f} ms"
    if name == "transferred_bytes":
        return f"{value / 1e12:.2f} TB"
    if name == "num_refusals":
        return str(value)
    return f"{value:.3f}"
