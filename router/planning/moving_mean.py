"""The mean of what was seen lately."""

from __future__ import annotations


class MovingMean:
    """Exponential: each new value weighs `weight`, but the first ones as much as they are of all seen."""

    def __init__(self, initial: float = 0.0, weight: float = 0.02) -> None:
        self.value = initial
        self._weight = weight
        self._count = 0

    def add(self, value: float) -> None:
        self._count += 1
        self.value += (value - self.value) * max(self._weight, 1 / self._count)
