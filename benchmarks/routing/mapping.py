"""What is gained where decode gives blocks their places late: how much of its memory waits for KV."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from benchmarks.routing.replayed import OURS, UTILIZATIONS, Claim, Traffic, run, scenario

MAX_WAITING = 0.10


def judge_mapping(traffic: Traffic) -> Iterator[Claim]:
    """The share of decode's block-seconds that requests hold which can't decode yet, beside that of mapping at once."""
    print("\nblock-seconds of decode held by requests that can't decode yet, and what their hand-over adds")
    print("            mapped late     mean      p99   at once     mean      p99")
    for utilization in UTILIZATIONS:
        cells = []
        for maps_late in (True, False):
            given = dataclasses.replace(scenario(), maps_late=maps_late)
            figures = run(traffic, given, [OURS], utilization)[OURS]
            waiting = figures["decode_waiting_share"]
            times = "  ".join(f"{1000 * figures[f'hand_over_{part}_s']:4.0f} ms" for part in ("mean", "p99"))
            cells.append(f"{waiting:8.1%}  {times}")
            if maps_late:
                yield Claim(
                    text=f"{utilization:.0%}: {waiting:.1%} of decode's block-seconds wait for KV "
                    f"(at most {MAX_WAITING:.0%})",
                    met=waiting <= MAX_WAITING,
                )
        print(f"  {utilization:>4.0%}         {'  '.join(cells)}")
