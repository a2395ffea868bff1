"""Drives an engine that takes requests at any time and computes step by step."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from benchmarks.speed.request import Answer, Request


class SteppedEngine(Protocol):
    def submit(self, number: int, request: Request) -> None: ...

    def step(self) -> Iterable[tuple[int, int]]:
        """Numbers of requests, and how many tokens each got."""
        ...


def run_stepped(engine: SteppedEngine, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
    """All at once, or at most so many at a time, the next one when one ends."""
    limit = concurrency or len(requests)
    sent_s: list[float] = []
    times_s: list[list[float]] = [[] for _ in requests]
    num_ended = 0
    began_s = time.perf_counter()
    while num_ended < len(requests):
        while len(sent_s) < min(len(requests), num_ended + limit):
            sent_s.append(time.perf_counter() - began_s)
            engine.submit(len(sent_s) - 1, requests[len(sent_s) - 1])
        steps = list(engine.step())  # a generator computes only when it is read
        now_s = time.perf_counter() - began_s
        for number, num_tokens in steps:
            times_s[number] += [now_s] * num_tokens
            num_ended += len(times_s[number]) == requests[number].max_tokens
    return [Answer(sent_s=sent, times_s=tuple(times)) for sent, times in zip(sent_s, times_s, strict=True)]
