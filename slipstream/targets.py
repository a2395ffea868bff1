"""Which router a call goes to: the one with the fewest calls of this client, but not one that has just failed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass

from common.address import check_address

# A router that failed rests so long, twice as long after each further failure.
FIRST_REST_S = 0.5
MAX_REST_S = 15.0


@dataclass(slots=True)
class _Target:
    num_calls: int = 0
    num_failures: int = 0  # since it last answered
    rests_until_s: float = 0.0  # monotonic


class Targets:
    """The routers of one client. Safe to use from many threads."""

    def __init__(self, target: str | Sequence[str]) -> None:
        """A string may hold several addresses, separated by commas.

        Raises ValueError when `target` has no address, or one that is not host:port.
        """
        self.addresses = tuple(target.split(",")) if isinstance(target, str) else tuple(target)
        if not self.addresses:
            raise ValueError("target: must be at least one host:port")
        for address in self.addresses:
            try:
                check_address(address)
            except ValueError as error:
                raise ValueError(f"target: {error}") from None
        self._targets = [_Target() for _ in self.addresses]
        self._turn = itertools.count()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.addresses)

    def begin(self, tried: Container[int] = (), silent: Container[int] = ()) -> int:
        """The index of the address for a call, which is counted until `end`; one of `tried` only when all are.

        Of `silent`, one only when the others were tried: who has waited for one in vain does not wait for it again
        when another may answer. Equals are used by turns. When all rest, the one that has rested longest is asked all
        the same; of those that have rested enough, one call finds out for the others whether it answers again.
        """
        now_s = time.monotonic()
        with self._lock:
            turn = next(self._turn)
            count = len(self._targets)
            order = [(turn + step) % count for step in range(count)]
            index = min(order, key=lambda one: self._rank(one, tried, silent, now_s))
            target = self._targets[index]
            target.num_calls += 1
            if target.num_failures:
                target.rests_until_s = now_s + _rest_s(target.num_failures)
            return index

    def end(self, index: int) -> None:
        """The call that `begin` counted is over, however it went."""
        with self._lock:
            self._targets[index].num_calls -= 1

    def note_answer(self, index: int) -> None:
        """It answers."""
        target = self._targets[index]
        if target.num_failures:
            with self._lock:
                target.num_failures, target.rests_until_s = 0, 0.0

    def note_failure(self, index: int) -> None:
        """It can't be reached, keeps silent, or sends callers elsewhere."""
        with self._lock:
            target = self._targets[index]
            target.num_failures += 1
            target.rests_until_s = time.monotonic() + _rest_s(target.num_failures)

    def _rank(
        self, index: int, tried: Container[int], silent: Container[int], now_s: float
    ) -> tuple[bool, bool, float, int]:
        target = self._targets[index]
        rests_until_s = target.rests_until_s if target.rests_until_s > now_s else 0.0
        return index in tried, index in silent, rests_until_s, target.num_calls


def _rest_s(num_failures: int) -> float:
    return float(min(FIRST_REST_S * 2 ** min(num_failures - 1, 10), MAX_REST_S))
