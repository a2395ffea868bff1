"""Tells of a server that is away without filling the log: it is asked several times a second, for hours if need be."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable

INTERVAL_S = 30.0


class OutageLog:
    """Owner: whoever asks the server; one event loop.

    A warning when something fails, at most one per `INTERVAL_S` while it keeps failing or comes and goes, and a line
    when all of it works again. `part` tells apart what may fail by itself, such as the nodes of a cluster.
    """

    def __init__(self, logger: logging.Logger, what: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._what = what
        self._clock = clock
        self._failing: set[Hashable] = set()
        self._since = 0.0
        self._told_at: float | None = None
        self._told = False  # of this outage

    def __bool__(self) -> bool:
        """Whether anything fails now."""
        return bool(self._failing)

    def failed(self, why: object, part: Hashable = None) -> None:
        now = self._clock()
        if not self._failing:
            self._since = now
        self._failing.add(part)
        if self._told_at is not None and now - self._told_at < INTERVAL_S:
            return
        duration = f" (for {now - self._since:.0f} s now)" if self._told else ""
        self._logger.warning("%s: %s%s; going on without it and trying again", self._what, why, duration)
        self._told_at, self._told = now, True

    def succeeded(self, part: Hashable = None) -> None:
        if part not in self._failing:
            return
        self._failing.remove(part)
        if not self._failing and self._told:
            self._logger.info("%s answers again", self._what)
            self._told = False
