"""An engine or a server that takes part, as the workloads see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from benchmarks.speed.request import Answer, Request


class ContenderError(Exception):
    """A contender can't be had on this machine, or has failed; the message says why."""


class Contender(Protocol):
    """Started once, then idle between runs: only one contender computes at a time."""

    name: str
    is_ours: bool
    is_server: bool
    has_prefix_cache: bool
    takes_arrivals: bool  # requests may come while others run

    @property
    def version(self) -> str: ...

    def start(self) -> None:
        """Returns when it is warm. Raises ContenderError when it can't be had here."""
        ...

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        """All at once, or so many at a time; answers in the order of the requests."""
        ...

    def close(self) -> None:
        """Idempotent."""
        ...
