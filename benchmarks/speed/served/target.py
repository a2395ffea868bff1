"""A server that streams answers, as the load generators see it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from benchmarks.speed.contender import Contender
from benchmarks.speed.request import Answer, Request


class StreamTarget(Protocol):
    def stream(self, request: Request) -> AsyncGenerator[int, None]:
        """How many tokens each message brings. Closing the iterator cancels the request."""
        ...


class ServedContender(Contender, Protocol):
    # One event loop for all servers and runs: what grpc does late for a loop that is closed fails.
    runner: asyncio.Runner

    def connect(self) -> AbstractAsyncContextManager[StreamTarget]:
        """Connections of the event loop that runs."""
        ...


async def timed(target: StreamTarget, request: Request, began_s: float) -> Answer:
    sent_s = time.perf_counter()
    times_s: list[float] = []
    async with aclosing(target.stream(request)) as stream:
        async for num_tokens in stream:
            times_s += [time.perf_counter() - began_s] * num_tokens
    return Answer(sent_s=sent_s - began_s, times_s=tuple(times_s))


async def ask_all(contender: ServedContender, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
    """All at once, or so many callers of which each asks again at once."""
    places = asyncio.Semaphore(concurrency or len(requests))
    async with contender.connect() as target:
        began_s = time.perf_counter()

        async def ask(request: Request) -> Answer:
            async with places:
                return await timed(target, request, began_s)

        return await asyncio.gather(*(ask(request) for request in requests))
