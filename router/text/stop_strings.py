"""Finds stop strings in text that arrives piece by piece.

What is found depends on the text alone, never on how it was cut into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StopScan:
    """Text that is certainly part of the answer, and the stop string that ends it, if one came."""

    text: str
    stop_string: str | None = None


class StopStrings:
    """Scanner for one answer. Holds back the longest ending that may be the start of a stop string.

    The match that ends first wins; of those that end together, the longest. The cost of a feed is
    O(new characters + longest stop string) for each stop string.
    """

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._held = ""

    def feed(self, text: str) -> StopScan:
        if not self._stop:
            return StopScan(text=text)
        buffer = self._held + text
        found = self._first_match(buffer)
        if found is not None:
            start, stop_string = found
            self._held = ""
            return StopScan(text=buffer[:start], stop_string=stop_string)
        keep = max(_partial_length(buffer, stop_string) for stop_string in self._stop)
        certain = len(buffer) - keep
        self._held = buffer[certain:]
        return StopScan(text=buffer[:certain])

    def flush(self) -> str:
        """The held text: the answer ended, so that it starts no stop string."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, buffer: str) -> tuple[int, str] | None:
        best: tuple[int, int, str] | None = None  # end, start, stop string
        for stop_string in self._stop:
            start = buffer.find(stop_string)
            if start >= 0:
                candidate = (start + len(stop_string), start, stop_string)
                if best is None or candidate < best:
                    best = candidate
        return None if best is None else (best[1], best[2])


def _partial_length(buffer: str, stop_string: str) -> int:
    """Length of the longest ending of `buffer` that is a proper beginning of `stop_string`."""
    first = stop_string[0]
    start = buffer.find(first, max(0, len(buffer) - len(stop_string) + 1))
    while start >= 0:
        if stop_string.startswith(buffer[start:]):
            return len(buffer) - start
        start = buffer.find(first, start + 1)
    return 0
