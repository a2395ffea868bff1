"""A whole run on one fleet: what answers are right is learnt, then fault after fault strikes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.chaos.asker import Asker
from benchmarks.chaos.cell import Stage, Strike
from benchmarks.chaos.coverage import Coverage
from benchmarks.chaos.fleet import Fleet, FleetSpec
from benchmarks.chaos.observer import Observer
from benchmarks.chaos.report import Tally, round_lines
from benchmarks.chaos.round import Round
from benchmarks.chaos.schedule import turns
from benchmarks.chaos.steadiness import Steadiness
from benchmarks.chaos.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """The schedule follows from `seed`. A fault that has missed one of `stages` is tried up to `max_passes` times."""

    fleet: FleetSpec
    workload: Workload
    seed: int
    strikes: Sequence[Strike]
    stages: Sequence[Stage] = tuple(Stage)
    max_passes: int
    max_s: float  # no round begins after so many seconds

    async def run(self, tally: Tally, say: Callable[[str], None]) -> Coverage:
        """Adds to `tally`; `say` takes lines for people. Raises UnavailableError when the fleet does not come up."""
        started_s = time.monotonic()
        coverage = Coverage(self.strikes, self.stages)
        async with (
            Fleet(self.fleet) as fleet,
            Asker(fleet, self.workload, self.seed) as asker,
        ):
            say(f"the fleet is ready after {time.monotonic() - started_s:.1f} s; its logs are in {fleet.log_dir}")
            await asker.learn(Steadiness(self.fleet.model))
            say(
                f"{len(asker.references)} questions are answered after {time.monotonic() - started_s:.1f} s; "
                f"{asker.num_unsteady} others were too close to call"
            )
            rounds = Round(fleet, asker, Observer(fleet), coverage)
            for turn in turns(self.seed, self.strikes, coverage, self.max_passes):
                if time.monotonic() - started_s > self.max_s:
                    break
                result = await rounds.run(turn, random.Random(f"round {self.seed} {turn.number}"))
                coverage.add(turn.strike, ((stage, len(ids)) for stage, ids in result.struck.items()))
                tally.add(result)
                for line in round_lines(turn, result):
                    say(line)
            fleet.keeps_logs = not tally.is_good
        return coverage
