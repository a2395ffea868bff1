"""Where requests wait when every worker has refused: most urgent first, then by arrival."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from common.errors import OverloadedError
from common.request import SamplingParams
from router.pace import Pace

# A refusal that no load report cancels (a worker came back, a reservation expired) is tried again after this.
RETRY_S = 0.25
# Who was refused rests so long: a busy fleet tells of its load hundreds of times a second, mostly of as little room.
REST_S = 0.02
# Of what is foretold, so much must be left: who comes a little late has cost as much as who comes in time.
MARGIN = 1.25


class Pin(NamedTuple):
    """The workers that a request insists on; None where any will do."""

    prefill_worker: str | None = None
    decode_worker: str | None = None


class Entry(NamedTuple):
    """In the order of turns. `number` tells entries apart."""

    priority: int
    arrival_s: float
    number: int


@dataclass(slots=True)
class _Line:
    heap: list[Entry] = field(default_factory=list)
    left: set[Entry] = field(default_factory=set)
    # Each waits for a turn of its own: one who leaves wakes the next, not everybody.
    turns: dict[Entry, asyncio.Event] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.heap) - len(self.left)

    def add(self, entry: Entry) -> None:
        heapq.heappush(self.heap, entry)
        self.turns[entry] = asyncio.Event()

    def leave(self, entry: Entry) -> None:
        self.left.add(entry)
        del self.turns[entry]
        while self.heap and self.heap[0] in self.left:
            self.left.remove(heapq.heappop(self.heap))
        if self.heap:
            self.turns[self.heap[0]].set()

    def num_before(self, priority: int, arrival_s: float) -> int:
        return sum(entry[:2] <= (priority, arrival_s) for entry in self.turns)


class WaitingRoom:
    """Only the head of a line tries again, each time that a worker's load moves, and keeps its place while it does.

    So room that comes free piece by piece adds up for the head, however much it needs, and nobody smaller takes it
    first. Requests pinned to the same workers have a line of their own: they would hold up all others for one
    worker's sake. Owned by the event loop; bounded over all lines.
    """

    def __init__(self, changed: asyncio.Event, capacity: int, fleet_version: Callable[[], int] = lambda: 0) -> None:
        self._changed = changed
        self._capacity = capacity
        self._lines: dict[Pin, _Line] = {}
        self._numbers = itertools.count()
        self.pace = Pace(fleet_version)

    def __len__(self) -> int:
        return sum(len(line) for line in self._lines.values())

    @contextmanager
    def place(self, priority: int, arrival_s: float, *, pin: Pin | None = None, begun: bool = False) -> Iterator[Place]:
        """A place that is not taken yet, and is left at the end in any case. `begun`: the answer has begun."""
        place = Place(self, priority, arrival_s, pin or Pin(), begun=begun)
        try:
            yield place
        finally:
            place.leave()

    def has_line(self, pin: Pin) -> bool:
        return pin in self._lines

    def check_deadline(self, priority: int, arrival_s: float, left_s: float, sampling: SamplingParams) -> None:
        """Raises OverloadedError with a hint when a request that came now would wait in vain for its last token.

        Nothing is foretold while nobody waits, or too few have waited.
        """
        line = self._lines.get(Pin())
        turn_s = self.pace.turn_s(time.monotonic())
        if line is None or turn_s is None:
            return
        wait_s = (line.num_before(priority, arrival_s) + 1) * turn_s
        answer_s = self.pace.answer_s(least_tokens=sampling.least_tokens, most_tokens=sampling.max_tokens)
        if (wait_s + answer_s) * MARGIN > left_s:
            raise OverloadedError(
                f"deadline_ms: {len(line)} wait; an answer is expected in {(wait_s + answer_s) * 1000:.0f} ms, "
                f"but only {max(0.0, left_s) * 1000:.0f} ms are left",
                retry_after_s=max(0.1, wait_s),
            )

    def enter(self, priority: int, arrival_s: float, pin: Pin, *, begun: bool) -> Entry:
        """Raises OverloadedError when the room is full, but not for an answer that has begun."""
        if len(self) >= self._capacity and not begun:
            raise OverloadedError("every worker is busy and the router's queue is full")
        entry = Entry(priority, arrival_s, next(self._numbers))
        if pin == Pin() and pin not in self._lines:
            self.pace.begin(time.monotonic())
        self._lines.setdefault(pin, _Line()).add(entry)
        return entry

    def leave(self, entry: Entry, pin: Pin) -> None:
        line = self._lines[pin]
        line.leave(entry)
        if not line:
            del self._lines[pin]

    async def wait_turn(self, entry: Entry, pin: Pin, not_before_s: float) -> None:
        """Returns when the entry heads its line and something may have changed; not before a monotonic time.

        Whoever comes to the head behind another tries at once: where that one found room, there may be more.
        """
        heap = self._lines[pin].heap
        turn = self._lines[pin].turns[entry]
        while True:
            if heap[0] == entry:
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._changed.wait()
            while heap[0] != entry:
                turn.clear()
                await turn.wait()
            await asyncio.sleep(not_before_s - time.monotonic())
            if heap[0] == entry:
                return


class Place:
    """One request's place in the room: taken while it waits and while it tries, left when a worker has taken it."""

    def __init__(self, room: WaitingRoom, priority: int, arrival_s: float, pin: Pin, *, begun: bool) -> None:
        self._room = room
        self._priority = priority
        self._arrival_s = arrival_s
        self._pin = pin
        self._begun = begun
        self._entry: Entry | None = None

    @property
    def others_wait(self) -> bool:
        """Whoever comes while others wait for the same workers takes his place behind them."""
        return self._room.has_line(self._pin)

    async def wait_turn(self, not_before_s: float = 0.0) -> None:
        """Takes the place, if it was not, and waits. Raises OverloadedError when the room is full."""
        if self._entry is None:
            self._entry = self._room.enter(self._priority, self._arrival_s, self._pin, begun=self._begun)
        await self._room.wait_turn(self._entry, self._pin, not_before_s)

    def taken(self) -> None:
        """A worker has taken the request."""
        if self._entry is not None and self._pin == Pin():
            self._room.pace.note_turn(time.monotonic())
        self.leave()

    def leave(self) -> None:
        """Idempotent; who waits again stands where he stood, by priority and arrival."""
        if self._entry is not None:
            self._room.leave(self._entry, self._pin)
            self._entry = None
