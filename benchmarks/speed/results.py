"""What was measured: every run's numbers, by workload and contender. Knows how to be kept as JSON and put together."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.limits import Limits
from benchmarks.speed.other_load import MAX_OTHER_CORES

Run = Mapping[str, float]
OTHER_CORES = "other_cores"  # in each run, beside its measures: what other processes used


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A contender that took part."""

    name: str
    version: str
    is_ours: bool
    is_server: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Bytes of weights that a decode step reads, and of KV per token, in bf16; parameters of the linear layers."""

    weight_bytes: int
    kv_bytes_per_token: int
    num_linear_parameters: int


@dataclass(slots=True, kw_only=True)
class Results:
    """Owned by whoever measures. `missing` and `faults` say why there is nothing: by contender, by workload and
    contender."""

    model: ModelSize
    limits: list[Limits] = field(default_factory=list)
    takers: list[Taker] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    runs: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    faults: dict[str, dict[str, str]] = field(default_factory=dict)

    def add(self, workload: str, contender: str, run: Run) -> None:
        self.runs.setdefault(workload, {}).setdefault(contender, []).append(run)

    def add_fault(self, workload: str, contender: str, why: str) -> None:
        self.faults.setdefault(workload, {})[contender] = why

    def median(self, workload: str, contender: str, measure: str) -> float | None:
        """Of the undisturbed runs, if there are any. None when it was not measured."""
        runs = [run for run in self.runs.get(workload, {}).get(contender, ()) if measure in run]
        values = [run[measure] for run in runs if not is_disturbed(run)] or [run[measure] for run in runs]
        return statistics.median(values) if values else None

    def limit(self, name: str) -> float | None:
        """The median of a field of Limits."""
        values = [getattr(one, name) for one in self.limits]
        return statistics.median(values) if values else None

    def num_disturbed(self) -> tuple[int, int]:
        """Runs that others disturbed, and all."""
        runs = [run for contenders in self.runs.values() for some in contenders.values() for run in some]
        return sum(map(is_disturbed, runs)), len(runs)

    @property
    def peers(self) -> list[Taker]:
        return [one for one in self.takers if not one.is_ours]

    def take_in(self, other: Results) -> None:
        """Puts another run's results in; where both have a workload of a contender, the other's count."""
        self.limits += other.limits
        names = {one.name for one in self.takers}
        self.takers += [one for one in other.takers if one.name not in names]
        self.missing |= other.missing
        for taker in self.takers:
            self.missing.pop(taker.name, None)
        for workload, contenders in other.runs.items():
            self.runs.setdefault(workload, {}).update(contenders)
        for workload, faults in other.faults.items():
            self.faults.setdefault(workload, {}).update(faults)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def is_disturbed(run: Run) -> bool:
    return run.get(OTHER_CORES, 0.0) > MAX_OTHER_CORES


def read_results(path: Path) -> Results:
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Results(
        model=ModelSize(**told["model"]),
        limits=[Limits(**one) for one in told["limits"]],
        takers=[Taker(**one) for one in told["takers"]],
        missing=told["missing"],
        runs=told["runs"],
        faults=told["faults"],
    )
