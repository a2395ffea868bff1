"""Workload i: Poisson arrivals at a rising rate; goodput is the rate at which nine of ten requests are good."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.contender import Contender
from benchmarks.speed.measure import Measure
from benchmarks.speed.metrics import quantile
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.request import Answer, Request
from benchmarks.speed.served.azure_lengths import AzureLengths
from benchmarks.speed.served.interference import is_served
from benchmarks.speed.served.target import ServedContender, StreamTarget, timed

# A request is good when its first token comes within the one, and 95 % of its tokens after it within the other.
MAX_TTFT_S = 1.0
MAX_GAP_S = 0.1
GOOD_SHARE = 0.9
RATES = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # requests/s
HOPELESS_SHARE = 0.5  # higher rates are not tried
PATIENCE_S = 20.0  # for what is under way when a rate's time is over; what takes longer is not good


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    due_s: float
    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    trace: Path
    rates: tuple[float, ...] = RATES
    phase_s: float = 20.0
    name: str = "i"
    about: str = "goodput: Azure's lengths / 4, Poisson, rising rate; TTFT 1 s, p95 between tokens 100 ms"

    @property
    def measures(self) -> Mapping[str, Measure]:
        goodput = {"goodput": Measure(unit="goodput, requests/s", higher_is_better=True)}
        shares = {
            share_name(rate): Measure(unit=f"good share at {rate:g}/s", higher_is_better=True) for rate in self.rates
        }
        return {**goodput, **shares}

    def runs_on(self, contender: Contender) -> bool:
        return contender.is_server

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        assert is_served(contender)
        lengths = AzureLengths(self.trace)
        shares: dict[float, float] = {}
        for rate in self.rates:
            arrivals = self._arrivals(lengths, prompts, rate, seed=round(1000 * rate) + repeat)
            shares[rate] = contender.runner.run(_good_share(contender, arrivals))
            if shares[rate] < HOPELESS_SHARE:
                break
        return {"goodput": goodput(shares), **{share_name(rate): share for rate, share in shares.items()}}

    def _arrivals(self, lengths: AzureLengths, prompts: Prompts, rate: float, seed: int) -> list[Arrival]:
        draw = random.Random(seed)
        arrivals: list[Arrival] = []
        due_s = draw.expovariate(rate)
        while due_s < self.phase_s or not arrivals:
            pair = lengths.draw(draw)
            (request,) = prompts.requests(1, pair.prompt_tokens, pair.output_tokens, seed=draw.randrange(2**32))
            arrivals.append(Arrival(due_s=due_s, request=request))
            due_s += draw.expovariate(rate)
        return arrivals


def share_name(rate: float) -> str:
    return f"share_at_{rate:g}"


def goodput(shares: Mapping[float, float]) -> float:
    """The rate at which the share of good requests falls below the limit, between two rates in a straight line."""
    best, best_share = 0.0, 1.0
    for rate, share in sorted(shares.items()):
        if share < GOOD_SHARE:
            return best + (rate - best) * (best_share - GOOD_SHARE) / (best_share - share)
        best, best_share = rate, share
    return best


def is_good(answer: Answer | None, request: Request) -> bool:
    if answer is None or len(answer.times_s) < request.max_tokens:
        return False
    return answer.ttft_s <= MAX_TTFT_S and quantile(answer.gaps_s or (0.0,), 0.95) <= MAX_GAP_S


async def _good_share(contender: ServedContender, arrivals: Sequence[Arrival]) -> float:
    async with contender.connect() as target:
        began_s = time.perf_counter()
        tasks = []
        for arrival in arrivals:
            await asyncio.sleep(began_s + arrival.due_s - time.perf_counter())
            tasks.append(asyncio.create_task(_ask(target, arrival.request, began_s)))
        answers = await asyncio.gather(*tasks)
    return sum(map(is_good, answers, (one.request for one in arrivals))) / len(arrivals)


async def _ask(target: StreamTarget, request: Request, began_s: float) -> Answer | None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await timed(target, request, began_s)
    except TimeoutError:
        return None
