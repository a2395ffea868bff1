"""A short form of `make chaos`: some faults at some stages, on real processes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from benchmarks.chaos.campaign import Campaign
from benchmarks.chaos.cell import Fault, Stage, Strike, Target
from benchmarks.chaos.fleets import small_fleet
from benchmarks.chaos.report import Tally
from benchmarks.chaos.small_model import save_small_model
from benchmarks.chaos.workload import SMALL_WORKLOAD, Kind

STRIKES = (Strike(Fault.KILL, Target.DECODE), Strike(Fault.CUT, Target.LINK))
STAGES = (Stage.MAPPED, Stage.SENDING)
KINDS = (Kind.GREEDY, Kind.SEEDED, Kind.CHOICES)


async def test_no_caller_is_harmed(tmp_path: Path) -> None:
    lines: list[str] = []
    campaign = Campaign(
        fleet=small_fleet(save_small_model(tmp_path)),
        workload=dataclasses.replace(SMALL_WORKLOAD, kinds=KINDS),
        seed=3,
        strikes=STRIKES,
        stages=STAGES,
        max_passes=3,
        max_s=120.0,
    )
    tally = Tally()
    coverage = await campaign.run(tally, lines.append)
    assert tally.is_good, "\n".join(lines)
    assert not coverage.gaps, "\n".join(lines)
    assert tally.num_requests >= 30
