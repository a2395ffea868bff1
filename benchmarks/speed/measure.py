"""A number that a workload yields, and how it reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    unit: str
    higher_is_better: bool
