"""A picture of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from common.errors import ConfigError
from slipstream.simulator.experiment import Run

MAX_POINTS = 2000


def draw_chart(runs: Sequence[Run], path: Path) -> None:
    """Writes a PNG: times to the first token, and hit rate beside balance. Raises ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("png", "needs matplotlib: pip install 'slipstream[simulator]'") from None
    picture = Figure(figsize=(13, 5), layout="constrained")
    times, hits, balance = picture.subplots(1, 3, width_ratios=(2, 1, 1))
    for run in runs:
        ordered = sorted(run.outcome.measurements.ttft_s)
        step = max(1, len(ordered) // MAX_POINTS)
        shares = [(index + 1) / len(ordered) for index in range(0, len(ordered), step)]
        times.plot(ordered[::step], shares, label=run.policy)
    times.set(xscale="log", xlabel="time to first token, s", ylabel="share of requests", ylim=(0, 1))
    times.grid(alpha=0.3)
    times.legend()
    names = [run.policy for run in runs]
    hits.barh(names, [run.figures["hit_rate"] for run in runs])
    hits.axvline(runs[0].figures["hit_rate_ceiling"], color="black", linestyle=":")
    hits.set(xlabel="hit rate (dotted: ceiling)")
    hits.invert_yaxis()
    balance.barh(names, [run.figures["busiest_over_mean"] for run in runs])
    balance.set(xlabel="busiest prefill worker / mean", xlim=(1, None), yticklabels=[])
    balance.invert_yaxis()
    try:
        picture.savefig(path, dpi=120, format="png")
    except OSError as error:
        raise ConfigError("png", f"{path} can't be written: {error.strerror}") from None
