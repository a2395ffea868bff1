from __future__ import annotations

import random

from common.request import WorkerId
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.events import EventQueue
from slipstream.simulator.prefix_store import GuessedHolders, IndexDelays, PrefixStore


class Bench:
    """Two workers, a and b, and a clock that is moved by hand."""

    def __init__(self, **delays: float | None) -> None:
        self.events = EventQueue()
        self.store = PrefixStore(self.events, IndexDelays(**delays), 10, random.Random(0))
        self.caches = {name: BlockCache(4) for name in "ab"}
        self.slots = {name: self.store.register(WorkerId(name)) for name in "ab"}
        self.own = GuessedHolders()

    def hold(self, name: str, keys: list[int]) -> None:
        cache = self.caches[name]
        num_held = cache.try_take(keys, 0)
        assert num_held is not None
        cache.store(keys[num_held:])
        cache.release(keys, 0)
        self.store.publish(self.slots[name], cache)

    def depths_at(self, time_s: float, keys: list[int]) -> dict[WorkerId, int]:
        found: list[dict[WorkerId, int]] = []
        self.events.at(time_s, lambda: found.append(self.store.depths(keys, self.own)))
        self.events.run()
        return found[0]


def test_depths_are_leading_tokens_by_worker() -> None:
    bench = Bench()
    bench.hold("a", [1, 2, 3])
    bench.hold("b", [1, 9])
    assert bench.depths_at(1.0, [1, 2, 3, 4]) == {"a": 30, "b": 10}
    assert bench.depths_at(1.0, [7, 1]) == {}


def test_a_write_is_seen_after_its_delay() -> None:
    bench = Bench(write_s=0.5)
    bench.hold("a", [1])
    assert bench.depths_at(0.4, [1]) == {}
    assert bench.depths_at(0.6, [1]) == {"a": 10}


def test_late_writes_are_late() -> None:
    bench = Bench(late_fraction=1.0, late_s=2.0)
    bench.hold("a", [1])
    assert bench.depths_at(1.9, [1]) == {}
    assert bench.depths_at(2.1, [1]) == {"a": 10}


def test_evicted_blocks_leave() -> None:
    bench = Bench()
    bench.hold("a", [1, 2, 3])
    bench.hold("a", [5, 6])
    assert bench.depths_at(1.0, [1, 2, 3]) == {"a": 20}


def test_an_ended_life_is_cold_at_once_and_its_late_writes_have_no_effect() -> None:
    bench = Bench(write_s=0.5)
    bench.hold("a", [1])
    assert bench.depths_at(0.6, [1]) == {"a": 10}
    bench.hold("a", [2])
    bench.store.retire(bench.slots["a"], bench.caches["a"])
    bench.store.register(WorkerId("a"))
    assert bench.depths_at(0.7, [1]) == {}
    assert bench.depths_at(2.0, [2]) == {}


def test_guesses_are_the_routers_own_at_once_and_others_later_for_a_while() -> None:
    bench = Bench(guess_s=0.1)
    others = GuessedHolders()
    bench.own.add(bench.slots["b"], [1])
    bench.store.guess(bench.slots["b"], [1], life_s=1.0)
    assert bench.store.depths([1], others) == {}
    assert bench.store.depths([1], bench.own) == {"b": 10}
    bench.own.remove(bench.slots["b"], [1])
    assert bench.depths_at(0.2, [1]) == {"b": 10}
    assert bench.depths_at(1.2, [1]) == {}


def test_each_guess_ends_in_its_own_time_unless_all_last_equally_long() -> None:
    lives = {None: [{"a": 10, "b": 10}, {"a": 10}, {}], 3.0: [{"a": 10, "b": 10}, {"a": 10, "b": 10}, {}]}
    for guess_life_s, found in lives.items():
        bench = Bench(guess_s=0.0, guess_life_s=guess_life_s)
        bench.store.guess(bench.slots["a"], [1], life_s=5.0)
        bench.store.guess(bench.slots["b"], [1], life_s=1.0)
        assert [bench.depths_at(time_s, [1]) for time_s in (0.5, 2.0, 6.0)] == found


def test_a_guess_made_twice_ends_with_the_second() -> None:
    bench = Bench()
    for _ in range(2):
        bench.own.add(0, [1])
    bench.own.remove(0, [1])
    assert bench.store.depths([1], bench.own) == {"a": 10}
    bench.own.remove(0, [1])
    assert bench.store.depths([1], bench.own) == {}
