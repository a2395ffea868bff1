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
    """Times between tokens of all streams, from when they count on."""

    seconds: list[float] = field(default_factory=list)
    counts: bool = False


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
            "p99_ratio": Measure(unit="disturbed in parts of undisturbed", higher_is_better=False),
            "disturbed_tokens_per_s": Measure(unit="tokens/s of the streams, disturbed", higher_is_better=True),
        }

    def runs_on(self, contender: Contender) -> bool:
        return contender.is_server

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        assert is_served(contender)
        num_prompts = int(self.phase_s / self.prompt_interval_s)
        seed = SEED * (repeat + 1)
        streams = prompts.requests(self.num_streams * 20, 16, self.stream_tokens, seed=seed)
        intruders = prompts.requests(num_prompts, self.prompt_tokens, 1, seed=seed + 1)
        return contender.runner.run(self._measure(contender, streams, intruders))

    async def _measure(
        self, contender: ServedContender, streams: list[Request], intruders: list[Request]
    ) -> Mapping[str, float]:
        async with contender.connect() as target:
            # Each phase begins anew, so that contexts, with which steps grow longer, are the same in both.
            quiet_s = await self._phase(target, streams[: len(streams) // 2], [])
            disturbed_s = await self._phase(target, streams[len(streams) // 2 :], intruders)
        quiet_p99_s, disturbed_p99_s = quantile(quiet_s, 0.99), quantile(disturbed_s, 0.99)
        return {
            "quiet_p99_ms": MS * quiet_p99_s,
            "disturbed_p99_ms": MS * disturbed_p99_s,
            "p99_ratio": disturbed_p99_s / quiet_p99_s,
            "disturbed_tokens_per_s": len(disturbed_s) / self.phase_s,
        }

    async def _phase(self, target: StreamTarget, streams: list[Request], intruders: list[Request]) -> list[float]:
        """Seconds between tokens of all streams, once they have started."""
        gaps = Gaps()
        supply = itertools.cycle(streams)
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(_decode_on(target, supply, gaps)) for _ in range(self.num_streams)
        ]
        await asyncio.sleep(self.start_s)
        gaps.counts = True
        began_s = time.perf_counter()
        for number, intruder in enumerate(intruders):
            await asyncio.sleep(began_s + number * self.prompt_interval_s - time.perf_counter())
            tasks.append(asyncio.create_task(timed(target, intruder, began_s)))
        await asyncio.sleep(began_s + self.phase_s - time.perf_counter())
        failures = [task.exception() for task in tasks if task.done() and not task.cancelled()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for failure in failures:
            if failure is not None:
                raise failure
        if not gaps.seconds:
            raise ValueError("no token came in a phase")
        return gaps.seconds


def is_served(contender: Contender) -> TypeGuard[ServedContender]:
    return contender.is_server


async def _decode_on(target: StreamTarget, supply: Iterator[Request], gaps: Gaps) -> None:
    """Streams one answer after the other until it is cancelled."""
    while True:
        last_s: float | None = None
        async with aclosing(target.stream(next(supply))) as stream:
            async for num_tokens in stream:
                now_s = time.perf_counter()
                if last_s is not None and gaps.counts:
                    # Several tokens in one message came one step after the other, and are seen at once.
                    gaps.seconds += [now_s - last_s] + [0.0] * (num_tokens - 1)
                last_s = now_s
