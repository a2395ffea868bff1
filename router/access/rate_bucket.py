"""A rate, held on average: what is taken comes back at so many units per second."""

from __future__ import annotations


class RateBucket:
    """Holds what comes in one second, at least one unit. Pure: callers pass `now_s`, on one monotonic clock.

    It may be overdrawn, and then takes longer to fill: who takes what he could not foresee pays for it afterwards.
    """

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        self._rate_per_s = rate_per_s
        self._level = self._capacity
        self._at_s = now_s

    def set_rate(self, rate_per_s: float, now_s: float) -> None:
        """From now on; what is in it stays, as far as it holds."""
        self._fill(now_s)
        self._rate_per_s = rate_per_s
        self._level = min(self._level, self._capacity)

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is a unit in it; 0 when there is."""
        self._fill(now_s)
        return max(0.0, (1.0 - self._level) / self._rate_per_s)

    def take(self, num_units: float, now_s: float) -> None:
        """Takes them, whether they are in it or not."""
        self._fill(now_s)
        self._level -= num_units

    @property
    def _capacity(self) -> float:
        return max(1.0, self._rate_per_s)

    def _fill(self, now_s: float) -> None:
        self._level = min(self._capacity, self._level + (now_s - self._at_s) * self._rate_per_s)
        self._at_s = now_s
