"""Workload h: streams that decode while long prompts arrive."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from benchmarks.speed.contender import Contender
from benchmarks.speed.measure import Measure
from benchmarks.speed.metrics import MS, quantile
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.request import Request
from benchmarks.speed.served.target import ServedContender, StreamTarget, timed

SEED = 1000


@dataclass(slots=True)
class Gaps:
    """Times between tokens of all streams, by the phase in which the second one came."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"": [], "quiet": [], "disturbed": []})
    phase: str = ""  # of which nothing is used: the streams start


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    name: str = "h"
    about: str = "interference: 8 streams decode, a prompt of 2,048 arrives every second"
    num_streams: int = 8
    stream_tokens: int = 1500
    prompt_tokens: int = 2048
    prompt_interval_s: float = 1.0
    start_s: float = 2.0
    phase_s: float = 10.0

    @property
    def measures(self) -> Mapping[str, Measure]:
        return {
            "quiet_p99_ms": Measure(unit="ms between tokens, p99, undisturbed", higher_is_better=False),
            "disturbed_p99_ms": Measure(unit="ms between tokens, p99, disturbed", higher_is_better=False),
            "disturbed_tokens_per_s": Measure(unit="tokens/s of the streams, disturbed", higher_is_better=True),
        }

    def runs_on(self, contender: Contender) -> bool:
        return contender.is_server

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        assert is_served(contender)
        num_prompts = int(self.phase_s / self.prompt_interval_s) + 1
        seed = SEED * (repeat + 1)
        streams = prompts.requests(self.num_streams * 20, 16, self.stream_tokens, seed=seed)
        intruders = prompts.requests(num_prompts, self.prompt_tokens, 1, seed=seed + 1)
        return contender.runner.run(self._measure(contender, streams, intruders))

    async def _measure(
        self, contender: ServedContender, streams: list[Request], intruders: list[Request]
    ) -> Mapping[str, float]:
        gaps = Gaps()
        supply = itertools.cycle(streams)
        async with contender.connect() as target:
            tasks: list[asyncio.Task[Any]] = [
                asyncio.create_task(_decode_on(target, supply, gaps)) for _ in range(self.num_streams)
            ]
            await asyncio.sleep(self.start_s)
            gaps.phase = "quiet"
            await asyncio.sleep(self.phase_s)
            gaps.phase = "disturbed"
            began_s = time.perf_counter()
            for number, intruder in enumerate(intruders):
                await asyncio.sleep(began_s + number * self.prompt_interval_s - time.perf_counter())
                tasks.append(asyncio.create_task(timed(target, intruder, began_s)))
            gaps.phase = ""
            failures = [task.exception() for task in tasks if task.done() and not task.cancelled()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for failure in failures:
            if failure is not None:
                raise failure
        if not gaps.seconds["quiet"] or not gaps.seconds["disturbed"]:
            raise ValueError("in one of the phases no token came")
        return {
            "quiet_p99_ms": MS * quantile(gaps.seconds["quiet"], 0.99),
            "disturbed_p99_ms": MS * quantile(gaps.seconds["disturbed"], 0.99),
            "disturbed_tokens_per_s": len(gaps.seconds["disturbed"]) / self.phase_s,
        }


def is_served(contender: Contender) -> TypeGuard[ServedContender]:
    return contender.is_server


async def _decode_on(target: StreamTarget, supply: Iterator[Request], gaps: Gaps) -> None:
    """Streams one answer after the other until it is cancelled."""
    while True:
        last_s: float | None = None
        async with aclosing(target.stream(next(supply))) as stream:
            async for num_tokens in stream:
                now_s = time.perf_counter()
                if last_s is not None:
                    # Several tokens in one message came one step after the other, and are seen at once.
                    gaps.seconds[gaps.phase] += [now_s - last_s] + [0.0] * (num_tokens - 1)
                last_s = now_s
