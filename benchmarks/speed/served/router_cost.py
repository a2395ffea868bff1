"""What a router costs: CPU time of its process per token of many streams, and per long prompt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.contender import Contender
from benchmarks.speed.measure import Measure
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.request import Request
from benchmarks.speed.served.slipstream_server import SlipstreamServer
from benchmarks.speed.served.target import StreamTarget, timed

IDLE_S = 1.0
SEED = 77


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterCost:
    name: str = "router"
    about: str = "router: CPU per token at 32 streams, and per prompt of 2,000, tokenising included"
    num_streams: int = 32
    stream_tokens: int = 96
    num_prompts: int = 8  # together they fit a worker's KV cache
    prompt_tokens: int = 2000

    @property
    def measures(self) -> Mapping[str, Measure]:
        return {
            "us_per_token": Measure(unit="CPU µs per token", higher_is_better=False),
            "ms_per_prompt": Measure(unit="CPU ms per prompt of 2,000", higher_is_better=False),
        }

    def runs_on(self, contender: Contender) -> bool:
        return isinstance(contender, SlipstreamServer)

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        assert isinstance(contender, SlipstreamServer)
        seed = SEED * (repeat + 1)
        streams = prompts.requests(self.num_streams, 16, self.stream_tokens, seed=seed)
        long = prompts.requests(self.num_prompts, self.prompt_tokens, 1, seed=seed + 1)
        return contender.runner.run(_measure(contender, streams, long))


class CpuMeter:
    """CPU seconds that a process used, less what it uses when nothing is asked of it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._idle_share = 0.0
        self._begin_s = self._used_s = 0.0

    async def learn_idle(self) -> None:
        self.begin()
        await asyncio.sleep(IDLE_S)
        self._idle_share = self.end() / IDLE_S

    def begin(self) -> None:
        self._begin_s, self._used_s = time.perf_counter(), cpu_s(self._pid)

    def end(self) -> float:
        idle_s = self._idle_share * (time.perf_counter() - self._begin_s)
        return max(0.0, cpu_s(self._pid) - self._used_s - idle_s)


def cpu_s(pid: int) -> float:
    """Of all its threads, in nanoseconds' resolution: a process's own clock counts in hundredths of a second."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


async def _measure(contender: SlipstreamServer, streams: list[Request], long: list[Request]) -> Mapping[str, float]:
    (name,) = contender.cluster.router_names
    meter = CpuMeter(contender.cluster.child(name).pid)
    async with contender.connect() as target:
        await meter.learn_idle()
        us_per_token = await _per_token(target, streams, meter)
        # The workers have them cached the second time: else the router's idle cost of seconds would drown the prompts'.
        for request in long:
            await timed(target, request, 0.0)
        meter.begin()
        for request in long:
            await timed(target, request, 0.0)
        ms_per_prompt = 1e3 * meter.end() / len(long)
    return {"us_per_token": us_per_token, "ms_per_prompt": ms_per_prompt}


async def _per_token(target: StreamTarget, requests: list[Request], meter: CpuMeter) -> float:
    """While all streams decode: neither their beginnings nor their ends are counted."""
    num_begun = num_counted = 0
    cost: list[float] = []

    async def read(request: Request) -> None:
        nonlocal num_begun, num_counted
        num_tokens = 0
        async for num_new in target.stream(request):
            if num_begun == len(requests) and not cost:
                num_counted += num_new
            if not num_tokens:
                num_begun += 1
                if num_begun == len(requests):
                    meter.begin()
            num_tokens += num_new
        if not cost:
            cost.append(1e6 * meter.end() / max(1, num_counted))

    await asyncio.gather(*(read(request) for request in requests))
    return cost[0]
