"""Brings requests to their stages and keeps them there until a fault strikes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from benchmarks.chaos.asker import Asker
from benchmarks.chaos.cell import Stage
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.observer import Look, Observer
from benchmarks.chaos.stream import Stream
from benchmarks.chaos.workload import Shape
from router.generation import RouteHint

# Until a blocker's step has begun: it takes several times as long.
BLOCKED_S = 0.1
OFFER_TIMEOUT_S = 0.6
POLL_INTERVAL_S = 0.004
NUM_FILLERS = 12
# Of their answers, when the others are asked: the strike comes a second later.
EARLY_PROGRESS = 0.3
LATE_PROGRESS = 0.5


class Placement:
    """All streams of the round of that number. `look` is the last one taken, just before the strike."""

    def __init__(self, fleet: Fleet, asker: Asker, observer: Observer, number: int) -> None:
        self._fleet = fleet
        self._asker = asker
        self._observer = observer
        self._number = number
        self.streams: list[Stream] = []
        self.look = Look(seen={}, prefilling={})

    async def under_way(
        self, is_time: Callable[[Look], bool], *, wants_offered: bool, wants_late: bool = False
    ) -> None:
        """Requests in every stage but the queue. `is_time` tells of a look whether it is time to strike.

        What is waited for and does not come is left out: the look says what there is.
        """
        streams = self._ask(Shape.STREAM)
        progress = LATE_PROGRESS if wants_late else EARLY_PROGRESS
        await self._until(lambda: any(stream.progress >= progress for stream in streams))
        for link in self._fleet.transfer_links():
            link.responses.stop_at_empty_answer()  # to Commit
        short = self._ask(Shape.SHORT)
        await self._until_seen(lambda look: sum(_has(look, one, Stage.COMMITTED) for one in short) >= 2)
        for link in self._fleet.transfer_links():
            link.requests.let_bytes(self._asker.workload.let_bytes)
        held = self._ask(Shape.HELD)
        await self._until_seen(
            lambda look: sum(_has(look, one, Stage.MAPPED, Stage.SENDING) for one in held) == len(held)
        )
        self._ask(Shape.LONG)
        if not wants_offered:
            await self._until_seen(is_time)
            return
        await self._until_seen(lambda look: bool(look.having(Stage.PREFILLING) and look.having(Stage.WAITING)))
        for decode_worker in self._fleet.decode_workers:
            # One step as long as its prompt: until its end nobody is granted anything.
            self._ask(Shape.BLOCKER, 1, route=RouteHint(decode_worker=decode_worker, decode_only=True))
        await asyncio.sleep(BLOCKED_S)
        self._ask(Shape.SHORT)
        await self._until_seen(is_time, timeout_s=OFFER_TIMEOUT_S)

    async def queued(self) -> None:
        """Every place in the batches is taken, and some requests wait for one."""
        self._ask(Shape.FILLER, NUM_FILLERS)
        self._ask(Shape.SHORT, 2)
        await self._until_seen(lambda look: len(look.having(Stage.QUEUED)) >= 2)

    async def draining(self, choose: Callable[[Look], str | None]) -> None:
        """Requests are under way, and the worker that `choose` names is told to stop; None: it can't be told yet."""
        self._ask(Shape.STREAM)
        self._ask(Shape.LONG)
        await self._until_seen(lambda look: choose(look) is not None)
        name = choose(self.look)
        if name is not None:
            self._fleet.processes[name].drain()
            await self._until_seen(lambda look: bool(look.having(Stage.DRAINING)))

    async def look_again(self) -> Look:
        """After the strike."""
        return await self._observer.look(self.streams, after=True)

    def release(self) -> None:
        """Opens every gate that was closed for a stage's sake."""
        for link in self._fleet.transfer_links():
            link.open()

    def _ask(self, shape: Shape, count: int | None = None, route: RouteHint | None = None) -> list[Stream]:
        """As many as the workload has of the shape, unless told otherwise."""
        # What others have cached draws requests to one pair of workers, and these are to spread over all.
        may_share = shape not in (Shape.SHORT, Shape.HELD)
        asked = [
            self._asker.ask(shape, salt=f"shared-{self._number}" if may_share and number % 2 else "", route=route)
            for number in range(count if count is not None else self._asker.workload.counts[shape])
        ]
        self.streams += asked
        return asked

    async def _until(self, holds: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + 4 * self._asker.workload.patience_s
        while not holds() and time.monotonic() < deadline_s:
            await asyncio.sleep(POLL_INTERVAL_S)

    async def _until_seen(self, holds: Callable[[Look], bool], timeout_s: float | None = None) -> None:
        deadline_s = time.monotonic() + (timeout_s or self._asker.workload.patience_s)
        while True:
            self.look = await self._observer.look(self.streams)
            if holds(self.look) or time.monotonic() > deadline_s:
                return
            await asyncio.sleep(POLL_INTERVAL_S)


def _has(look: Look, stream: Stream, *stages: Stage) -> bool:
    seen = look.seen.get(stream.request_id)
    return seen is not None and not seen.stages.isdisjoint(stages)
