"""Credits hold nothing; blocks are held from the map on, and waited for in turn."""

from __future__ import annotations

from collections.abc import Iterator

from common.engine.block_forecast import BlockEvent
from slipstream.simulator.block_cache import BlockCache
from slipstream.simulator.credit_desk import CreditDesk
from slipstream.simulator.events import EventQueue
from slipstream.simulator.job import Job
from slipstream.simulator.trace import TraceRequest

NUM_BLOCKS = 10
BLOCK_SIZE = 10


class Bench:
    """A desk over ten blocks, beside a batch that gives some back when it is told to."""

    def __init__(self, *releases: BlockEvent) -> None:
        self.events = EventQueue()
        self.cache = BlockCache(NUM_BLOCKS)
        self.desk = CreditDesk(self.cache, BLOCK_SIZE, self.events)
        self._releases = releases
        self._number = 0

    def job(self, num_blocks: int, first_id: int | None = None) -> Job:
        """Its prompt has all but one of the blocks."""
        self._number += 1
        first = 100 * self._number if first_id is None else first_id
        request = TraceRequest(0.0, BLOCK_SIZE * (num_blocks - 1), 5, range(first, first + num_blocks - 1))
        return Job(request=request, number=self._number, router_index=0)

    def reserve(self, job: Job, map_after_s: float | None) -> bool:
        return self.desk.try_reserve(job, map_after_s, self.releases)

    def releases(self) -> Iterator[BlockEvent]:
        yield from self._releases

    def release(self, job: Job) -> None:
        ids, num_held = job.request.block_ids, job.num_decode_blocks
        self.cache.release(ids[:num_held], len(ids) - num_held + self.desk.num_answer_blocks(job))


def test_a_credit_holds_no_block_until_it_is_mapped() -> None:
    bench = Bench()
    late, at_once = bench.job(6), bench.job(3)
    assert bench.reserve(late, 5.0) and bench.reserve(at_once, None)
    assert bench.cache.num_free == 7
    assert bench.desk.try_map(late)
    assert bench.cache.num_free == 1
    assert len(bench.desk) == 2


def test_a_credit_counts_against_those_after_it() -> None:
    bench = Bench()
    assert bench.reserve(bench.job(6), 5.0)
    assert not bench.reserve(bench.job(5), 1.0)
    assert not bench.reserve(bench.job(5), None)
    assert bench.reserve(bench.job(4), None)


def test_what_the_batch_gives_back_in_time_is_lent_now() -> None:
    bench = Bench(BlockEvent(2.0, 4))
    running = bench.job(8)
    assert bench.reserve(running, None)
    bench.desk.end(running)
    assert not bench.reserve(bench.job(6), 1.0)
    assert bench.reserve(bench.job(6), 3.0)
    assert not bench.reserve(bench.job(6), 4.0)


def test_an_idle_worker_takes_whatever_fits() -> None:
    bench = Bench()
    assert bench.desk.try_reserve(bench.job(11), 1.0, None)
    assert not bench.desk.try_reserve(bench.job(11), None, None)


def test_held_blocks_in_no_use_are_not_counted_twice() -> None:
    bench = Bench()
    before = bench.job(7, first_id=0)
    assert bench.reserve(before, None)
    bench.cache.store(before.request.block_ids)
    before.num_decode_blocks = 6
    bench.desk.end(before)
    bench.release(before)
    assert bench.reserve(bench.job(7, first_id=0), None)
    # Six are held again, and one is the answer's: three are left.
    assert not bench.reserve(bench.job(4), None)
    assert bench.reserve(bench.job(3), None)


def test_who_finds_no_block_is_paid_when_there_are_some_and_who_asked_first_first() -> None:
    bench = Bench(BlockEvent(1.0, 8))
    running = bench.job(8)
    assert bench.reserve(running, None)
    bench.desk.end(running)
    first, second = bench.job(4), bench.job(3)
    assert bench.reserve(first, 2.0) and bench.reserve(second, 2.0)
    assert not bench.desk.try_map(first) and not bench.desk.try_map(second)
    assert bench.desk.pay() == []
    bench.release(running)
    assert bench.desk.pay() == [first, second]
    assert bench.desk.pay() == []
    assert bench.desk.num_owed_maps == 2
    assert bench.cache.num_free == 3


def test_a_given_up_reservation_is_owed_nothing() -> None:
    bench = Bench()
    assert bench.desk.try_reserve(bench.job(9), None, None)
    late = bench.job(3)
    assert bench.desk.try_reserve(late, 1.0, None)
    assert not bench.desk.try_map(late)
    bench.desk.end(late)
    assert bench.desk.pay() == []
    assert len(bench.desk) == 1


def test_only_mapped_prompts_wait_with_memory() -> None:
    bench = Bench()
    late, never = bench.job(3), bench.job(3)
    assert bench.reserve(late, 2.0) and bench.reserve(never, 2.0)
    bench.events.at(2.0, bench.desk.try_map, late)
    bench.events.at(5.0, bench.desk.end, late)
    bench.events.at(6.0, bench.desk.end, never)
    bench.events.run()
    assert bench.desk.waiting_token_s == 20 * 3.0
