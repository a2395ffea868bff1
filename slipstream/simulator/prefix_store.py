"""The prefix index of the simulation, in this process: which worker holds which block, as routers see it."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from common.request import WorkerId
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.events import EventQueue

# The workers of a set are kept for the next lookup: those that hold a system prompt are asked for all the time.
MAX_DECODED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDelays:
    """Seconds from a worker's event until routers see it, and from a router's guess until others do.

    Those believe it for as long as the product's routers would, or for `guess_life_s`.
    """

    write_s: float = 0.01
    late_fraction: float = 0.0
    late_s: float = 2.0
    guess_s: float = 0.005
    guess_life_s: float | None = None


class HolderSets:
    """Sets of slots by key, each an integer with a bit per slot: thousands of them intersect in a microsecond."""

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._bits: list[int] = []  # one object per slot, since most blocks have one holder

    def add(self, slot: int, key: int) -> None:
        bit = self._bit(slot)
        mask = self.masks.get(key)
        self.masks[key] = bit if mask is None or mask == bit else mask | bit

    def remove(self, slot: int, key: int) -> None:
        mask = self.masks.get(key, 0) & ~self._bit(slot)
        if not mask:
            self.masks.pop(key, None)
        elif mask & (mask - 1):
            self.masks[key] = mask
        else:
            self.masks[key] = self._bit(mask.bit_length() - 1)

    def _bit(self, slot: int) -> int:
        while len(self._bits) <= slot:
            self._bits.append(1 << len(self._bits))
        return self._bits[slot]


class GuessedHolders:
    """What workers are expected to hold soon; a worker may be guessed several times for the same key."""

    def __init__(self) -> None:
        self.holders = HolderSets()
        self._counts: dict[tuple[int, int], int] = {}

    def add(self, slot: int, keys: Iterable[int]) -> None:
        for key in keys:
            count = self._counts.get((slot, key), 0)
            self._counts[(slot, key)] = count + 1
            if not count:
                self.holders.add(slot, key)

    def remove(self, slot: int, keys: Iterable[int]) -> None:
        for key in keys:
            count = self._counts[(slot, key)] - 1
            if count:
                self._counts[(slot, key)] = count
            else:
                del self._counts[(slot, key)]
                self.holders.remove(slot, key)


class PrefixStore:
    """A slot belongs to one life of one worker. A write that arrives tells what the worker holds at that moment, so
    that late ones don't undo others."""

    def __init__(self, events: EventQueue, delays: IndexDelays, block_size: int, draw: random.Random) -> None:
        self._events = events
        self._delays = delays
        self._block_size = block_size
        self._draw = draw
        self._workers: list[WorkerId] = []
        self._live = 0
        self._decoded: dict[int, list[WorkerId]] = {}
        self._held = HolderSets()
        self._guesses = GuessedHolders()
        self._entering: deque[tuple[float, float, int, Sequence[int]]] = deque()
        self._leaving: list[tuple[float, int, int, Sequence[int]]] = []
        self._number = 0

    def register(self, worker_id: WorkerId) -> int:
        """A slot for a new life of a worker."""
        self._workers.append(worker_id)
        slot = len(self._workers) - 1
        self._live |= 1 << slot
        return slot

    def retire(self, slot: int, cache: BlockCache) -> None:
        """The life has ended: it is cold at once."""
        self._live &= ~(1 << slot)
        for key in cache:
            self._held.remove(slot, key)

    def publish(self, slot: int, cache: BlockCache) -> None:
        """Takes the cache's changes to the index; some of them late."""
        if cache.changes:
            keys, cache.changes = cache.changes, []
            delays = self._delays
            late = delays.late_fraction > 0 and self._draw.random() < delays.late_fraction
            self._events.at(
                self._events.now_s + (delays.late_s if late else delays.write_s), self._write, slot, keys, cache
            )

    def guess(self, slot: int, keys: Sequence[int], life_s: float) -> None:
        """A router gives these blocks to a worker to compute. Others see it a moment later, and for a while."""
        delays = self._delays
        life_s = life_s if delays.guess_life_s is None else delays.guess_life_s
        self._entering.append((self._events.now_s + delays.guess_s, life_s, slot, keys))

    def depths(self, keys: Sequence[int], own: GuessedHolders) -> dict[WorkerId, int]:
        """Tokens held from the prompt's start, by worker; `own` are the asking router's guesses."""
        self._pass_guesses()
        held, guessed, expected = self._held.masks, self._guesses.holders.masks, own.holders.masks
        found: dict[WorkerId, int] = {}
        holders = self._live
        depth = 0
        for key in keys:
            remaining = holders & (held.get(key, 0) | guessed.get(key, 0) | expected.get(key, 0))
            if remaining != holders:
                if depth:
                    self._enter(found, holders & ~remaining, depth)
                holders = remaining
                if not holders:
                    return found
            depth += 1
        self._enter(found, holders, depth)
        return found

    def _enter(self, found: dict[WorkerId, int], slots: int, depth: int) -> None:
        workers = self._decoded.get(slots)
        if workers is None:
            if len(self._decoded) >= MAX_DECODED:
                self._decoded.clear()
            workers = self._decoded[slots] = [self._workers[slot] for slot in _slots(slots)]
        found.update(dict.fromkeys(workers, depth * self._block_size))

    def _write(self, slot: int, keys: list[int], cache: BlockCache) -> None:
        if self._live >> slot & 1:
            for key in keys:
                if key in cache:
                    self._held.add(slot, key)
                else:
                    self._held.remove(slot, key)

    def _pass_guesses(self) -> None:
        now_s = self._events.now_s
        while self._entering and self._entering[0][0] <= now_s:
            entered_s, life_s, slot, keys = self._entering.popleft()
            self._guesses.add(slot, keys)
            self._number += 1
            heapq.heappush(self._leaving, (entered_s + life_s, self._number, slot, keys))
        while self._leaving and self._leaving[0][0] <= now_s:
            _, _, slot, keys = heapq.heappop(self._leaving)
            self._guesses.remove(slot, keys)


def _slots(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
