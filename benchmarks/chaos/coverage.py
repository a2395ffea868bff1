"""Which faults have struck which stages for certain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmarks.chaos.cell import Stage, Strike


class Coverage:
    """How many requests were struck in each cell. `strikes` and `stages` say which cells there are."""

    def __init__(self, strikes: Sequence[Strike], stages: Sequence[Stage] = tuple(Stage)) -> None:
        self.strikes = tuple(strikes)
        self.stages = tuple(stages)
        self._counts: Counter[tuple[Strike, Stage]] = Counter()

    def add(self, strike: Strike, stages: Iterable[tuple[Stage, int]]) -> None:
        for stage, count in stages:
            self._counts[strike, stage] += count

    def count(self, strike: Strike, stage: Stage) -> int:
        return self._counts[strike, stage]

    def missing(self, strike: Strike) -> set[Stage]:
        """Stages that the fault has not met yet."""
        return {stage for stage in self.stages if stage.applies_to(strike) and not self._counts[strike, stage]}

    @property
    def gaps(self) -> list[tuple[Strike, Stage]]:
        return [(strike, stage) for strike in self.strikes for stage in self.stages if stage in self.missing(strike)]

    def table(self) -> str:
        """A line per fault, a column per stage; a gap is a dash, what does not go together a dot."""
        widths = [max(len(stage), 3) for stage in self.stages]
        first = max((len(str(strike)) for strike in self.strikes), default=0)
        lines = [" " * first + "".join(f"  {stage:>{width}}" for stage, width in zip(self.stages, widths, strict=True))]
        for strike in self.strikes:
            cells = (self._counts[strike, stage] or ("-" if stage.applies_to(strike) else ".") for stage in self.stages)
            row = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            lines.append(f"{strike!s:<{first}}{row}")
        return "\n".join(lines)
