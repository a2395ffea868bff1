"""Offers requests at a rate, whatever becomes of them, and keeps what became of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.random_model import VOCAB_SIZE
from common.errors import SlipstreamError
from slipstream.async_client import AsyncClient

# Tokens of a byte each come first in the vocabulary; these have no text.
FIRST_TOKEN_ID = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests of one kind. Every prompt is new, every answer as long as it may be."""

    prompt_tokens: int = 256
    max_tokens: int = 32
    deadline_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Monotonic seconds. `status` is empty for an answer. `late_s`: how much later it was sent than planned."""

    sent_s: float
    ended_s: float
    status: str
    late_s: float = 0.0

    @property
    def took_s(self) -> float:
        return self.ended_s - self.sent_s


class Offered:
    """What became of the requests of one phase that began at `began_s` and offered for `seconds`."""

    def __init__(self, workload: Workload, began_s: float, seconds: float, outcomes: Sequence[Outcome]) -> None:
        self.workload = workload
        self.began_s = began_s
        self.seconds = seconds
        self.outcomes = outcomes

    def goodput(self, skip_s: float) -> float:
        """Answers within the deadline that came in the phase, per second, but for its first seconds: then the pipeline
        fills. What comes after its end is not counted, or a short phase could work off a queue at leisure."""
        begin_s, end_s = self.began_s + skip_s, self.began_s + self.seconds
        num_good = sum(self.is_good(one) and begin_s < one.ended_s <= end_s for one in self.outcomes)
        return num_good / (self.seconds - skip_s)

    @property
    def offered_per_s(self) -> float:
        return len(self.outcomes) / self.seconds

    @property
    def statuses(self) -> Counter[str]:
        return Counter(one.status or "answered" for one in self.outcomes)

    def is_good(self, one: Outcome) -> bool:
        return not one.status and one.took_s <= self.workload.deadline_s

    def after(self, seconds: float) -> list[Outcome]:
        """What was sent later than this in the phase."""
        return [one for one in self.outcomes if one.sent_s - self.began_s >= seconds]

    def refusal_s(self, share: float) -> float:
        """Seconds until a refusal, at this quantile; 0 when none was refused."""
        took_s = sorted(one.took_s for one in self.outcomes if one.status == "RESOURCE_EXHAUSTED")
        return took_s[min(len(took_s) - 1, int(share * len(took_s)))] if took_s else 0.0


class LoadGenerator:
    """Owned by one event loop. Arrivals are a Poisson process of a fixed seed."""

    def __init__(self, targets: Sequence[str], workload: Workload, seed: int) -> None:
        self._client = AsyncClient(targets)
        self.workload = workload
        self._random = random.Random(seed)

    async def close(self) -> None:
        await self._client.close()

    async def offer(self, requests_per_s: float, seconds: float) -> Offered:
        """Ends when the last request of the phase has."""
        began_s = due_s = time.monotonic()
        tasks: list[asyncio.Task[Outcome]] = []
        while (due_s := due_s + self._random.expovariate(requests_per_s)) < began_s + seconds:
            await asyncio.sleep(due_s - time.monotonic())
            tasks.append(asyncio.create_task(self._ask(due_s)))
        return Offered(self.workload, began_s, seconds, await asyncio.gather(*tasks))

    async def saturate(self, num_callers: int, seconds: float) -> Offered:
        """Each of so many callers asks again at once."""
        began_s = time.monotonic()
        outcomes: list[Outcome] = []

        async def ask_on() -> None:
            while time.monotonic() < began_s + seconds:
                outcomes.append(await self._ask(time.monotonic()))

        await asyncio.gather(*(ask_on() for _ in range(num_callers)))
        return Offered(self.workload, began_s, time.monotonic() - began_s, outcomes)

    async def _ask(self, due_s: float) -> Outcome:
        sent_s = time.monotonic()
        prompt = [self._random.randrange(FIRST_TOKEN_ID, VOCAB_SIZE) for _ in range(self.workload.prompt_tokens)]
        try:
            await self._client.generate(
                prompt,
                max_tokens=self.workload.max_tokens,
                ignore_eos=True,
                deadline_ms=round(self.workload.deadline_s * 1000),
            )
            status = ""
        except SlipstreamError as error:
            status = error.status.value
        return Outcome(sent_s=sent_s, ended_s=time.monotonic(), status=status, late_s=sent_s - due_s)
