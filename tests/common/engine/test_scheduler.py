from dataclasses import replace

import numpy as np

from common.engine.scheduler import Scheduler
from common.engine.scheduler_config import SchedulerConfig
from common.engine.sequence import Sequence, SequenceState
from common.kv.manager import BlockCopy, KVCacheManager
from tests.support.engine import KEY_ROOT, make_leg, tiny_spec


def make_scheduler(
    num_blocks: int = 64,
    *,
    requeue: bool = True,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 32,
    num_host_blocks: int = 0,
) -> Scheduler:
    kv = KVCacheManager(spec=tiny_spec(8), num_blocks=num_blocks, key_root=KEY_ROOT, num_host_blocks=num_host_blocks)
    config = SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens)
    return Scheduler(kv=kv, config=config, requeue_preempted=requeue)


def make_sequence(
    scheduler: Scheduler,
    num_tokens: int,
    *,
    arrival: int = 0,
    priority: int = 0,
    hand_over: bool = False,
    first: int = 0,
) -> Sequence:
    leg = replace(make_leg(range(first, first + num_tokens)), priority=priority)
    return Sequence(
        leg=leg,
        choice_indices=leg.choice_indices,
        token_ids=np.array(leg.prompt_token_ids, dtype="<u4"),
        table=scheduler._kv.open(b""),
        arrival=arrival,
        submit_s=0.0,
        hand_over=hand_over,
    )


def enqueue(scheduler: Scheduler, num_tokens: int, **options: int) -> Sequence:
    sequence = make_sequence(scheduler, num_tokens, **options)  # type: ignore[arg-type]
    scheduler.enqueue(sequence)
    return sequence


def work(scheduler: Scheduler) -> list[tuple[Sequence, int, int]]:
    return [(entry.sequence, entry.start, entry.num_tokens) for entry in scheduler.schedule().scheduled]


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    scheduler = make_scheduler()
    sequence = enqueue(scheduler, 70)
    outputs = [scheduler.schedule() for _ in range(3)]
    assert [(o.scheduled[0].start, o.scheduled[0].num_tokens) for o in outputs] == [(0, 32), (32, 32), (64, 6)]
    assert [o.scheduled[0].samples for o in outputs] == [False, False, True]
    assert sequence.num_remaining_tokens == 1


def test_decoding_comes_before_a_prefill_under_way_and_before_the_queue() -> None:
    scheduler = make_scheduler()
    decoding = enqueue(scheduler, 8, arrival=1)
    scheduler.schedule()
    long = enqueue(scheduler, 60, arrival=0, first=100)
    assert work(scheduler) == [(decoding, 8, 1), (long, 0, 31)]
    queued = enqueue(scheduler, 40, arrival=2, first=200)
    assert work(scheduler) == [(decoding, 9, 1), (long, 31, 29), (queued, 0, 2)]


def test_the_queue_is_ordered_by_priority_then_arrival() -> None:
    scheduler = make_scheduler(max_num_batched_tokens=8)
    late = enqueue(scheduler, 8, arrival=2, first=0)
    early = enqueue(scheduler, 8, arrival=1, first=10)
    urgent = enqueue(scheduler, 8, arrival=3, priority=-1, first=20)
    assert scheduler.waiting == [urgent, early, late]


def test_scheduling_again_needs_no_token_value() -> None:
    scheduler = make_scheduler()
    sequence = enqueue(scheduler, 8)
    scheduler.schedule()
    assert sequence.num_known_tokens == 8
    assert work(scheduler) == [(sequence, 8, 1)]


def test_a_sequence_that_awaits_first_tokens_of_several_choices_is_not_scheduled() -> None:
    scheduler = make_scheduler()
    enqueue(scheduler, 8, hand_over=True)
    assert len(work(scheduler)) == 1
    assert work(scheduler) == []


def test_the_batch_holds_max_num_seqs_choices_reserved_ones_included() -> None:
    scheduler = make_scheduler(max_num_seqs=3)
    scheduler.num_reserved_choices = 1
    sequences = [enqueue(scheduler, 4, arrival=index, first=10 * index) for index in range(3)]
    assert [entry[0] for entry in work(scheduler)] == sequences[:2]
    scheduler.num_reserved_choices = 0
    assert work(scheduler)[-1][0] is sequences[2]


def test_the_head_of_the_queue_waits_for_blocks_and_is_not_passed() -> None:
    scheduler = make_scheduler(num_blocks=4)
    running = enqueue(scheduler, 16, arrival=0)
    scheduler.schedule()
    enqueue(scheduler, 16, arrival=1, first=100)
    enqueue(scheduler, 1, arrival=2, first=200)
    assert [entry[0] for entry in work(scheduler)] == [running]


def test_the_least_urgent_then_youngest_is_preempted() -> None:
    scheduler = make_scheduler(num_blocks=6)
    first = enqueue(scheduler, 16, arrival=0)
    low = enqueue(scheduler, 7, arrival=1, priority=1, first=100)
    young = enqueue(scheduler, 6, arrival=2, first=200)
    scheduler.schedule()
    scheduler._kv.pool.allocate(2)  # a transfer holds the rest
    output = scheduler.schedule()
    assert output.preempted == (low,)
    assert {entry.sequence for entry in output.scheduled} == {first, young}
    assert scheduler.waiting == [low]
    assert low.num_computed_tokens == 0
    assert scheduler.num_preemptions == 1


def test_a_victim_that_was_scheduled_in_this_step_gives_its_share_back() -> None:
    scheduler = make_scheduler(num_blocks=5)
    urgent = enqueue(scheduler, 15, arrival=0)
    scheduler.schedule()
    victim = enqueue(scheduler, 6, arrival=1, first=100)
    scheduler.schedule()
    scheduler._kv.pool.allocate(2)
    urgent.num_known_tokens = urgent.num_tokens = 18  # as if several tokens were to be verified
    output = scheduler.schedule()
    assert output.preempted == (victim,)
    assert [entry.sequence for entry in output.scheduled] == [urgent]
    assert victim.num_remaining_tokens == victim.num_tokens


def test_a_victim_whose_copy_is_not_made_is_swapped_out_from_where_its_content_lies() -> None:
    scheduler = make_scheduler(num_blocks=5, num_host_blocks=5)
    urgent = enqueue(scheduler, 15, arrival=0)
    scheduler.schedule()
    victim = enqueue(scheduler, 6, arrival=1, first=100)
    scheduler.schedule()
    urgent.num_known_tokens = urgent.num_tokens  # as if their values had come
    victim.num_known_tokens = victim.num_tokens
    victim.leg = replace(victim.leg, prompt_token_ids=tuple(range(100, 107)))
    victim._token_ids = np.array(victim.leg.prompt_token_ids, dtype="<u4")
    shared_id = victim.table.block_id(0)
    twin = scheduler._kv.fork(victim.table)
    urgent.num_known_tokens = urgent.num_tokens = 25  # as if several tokens were to be verified
    output = scheduler.schedule()
    assert [entry.sequence for entry in output.scheduled] == [urgent]
    assert output.copies == (BlockCopy(shared_id, 5),), "the block that was to be its copy was never filled"
    assert scheduler.swapped == [victim]
    scheduler._kv.free(twin)


def test_what_was_swapped_out_comes_back_before_the_queue_and_with_blocks_to_spare() -> None:
    scheduler = make_scheduler(num_blocks=5, num_host_blocks=5)
    first = enqueue(scheduler, 17, arrival=0)
    last = enqueue(scheduler, 8, arrival=1, first=100)
    scheduler.schedule()
    held = scheduler._kv.pool.allocate(1)  # a transfer holds the rest
    for sequence in (first, last):
        sequence.num_known_tokens = sequence.num_tokens
        sequence._token_ids = np.arange(sequence.num_tokens, dtype="<u4")
    output = scheduler.schedule()
    assert (output.preempted, [entry.sequence for entry in output.scheduled]) == ((), [first])
    assert len(output.copies) == 1
    first.num_known_tokens = first.num_tokens
    queued = enqueue(scheduler, 1, arrival=-1, first=200)
    assert [entry[0] for entry in work(scheduler)] == [first], "nothing new before what waits on the host"
    scheduler._kv.pool.release(held)
    first._token_ids = np.arange(first.num_tokens, dtype="<u4")
    first.num_known_tokens = first.num_tokens
    scheduler._kv.free(first.table)
    scheduler.remove(first)
    assert work(scheduler) == [(last, 8, 1), (queued, 0, 1)]


def test_a_sequence_preempts_itself_when_it_is_the_least_urgent() -> None:
    scheduler = make_scheduler(num_blocks=5)
    first = enqueue(scheduler, 17, arrival=0)
    last = enqueue(scheduler, 8, arrival=1, first=100)
    scheduler.schedule()
    scheduler._kv.pool.allocate(1)  # a transfer holds the rest
    output = scheduler.schedule()
    assert output.preempted == (last,)
    assert [entry.sequence for entry in output.scheduled] == [first]


def test_a_sequence_being_handed_over_is_never_preempted() -> None:
    scheduler = make_scheduler(num_blocks=4)
    growing = enqueue(scheduler, 8, arrival=0)
    handed_over = enqueue(scheduler, 10, arrival=1, hand_over=True, first=100)
    scheduler.schedule()
    scheduler._kv.pool.allocate(1)  # a transfer holds the rest
    assert scheduler.schedule().preempted == (growing,)
    assert handed_over.state is SequenceState.RUNNING


def test_without_requeueing_a_victim_ends() -> None:
    scheduler = make_scheduler(num_blocks=5, requeue=False)
    enqueue(scheduler, 17, arrival=0)
    last = enqueue(scheduler, 8, arrival=1, first=100)
    scheduler.schedule()
    scheduler._kv.pool.allocate(1)  # a transfer holds the rest
    assert scheduler.schedule().preempted == (last,)
    assert scheduler.waiting == []
    assert last.state is SequenceState.ENDED


def compute(scheduler: Scheduler, num_tokens: int) -> Sequence:
    """A sequence whose blocks are cached, and still its own."""
    sequence = enqueue(scheduler, num_tokens)
    scheduler.schedule()
    scheduler._kv.register_computed(sequence.table, sequence.token_ids, num_tokens)
    return sequence


def test_a_cached_prefix_is_not_computed_again_but_for_one_token() -> None:
    scheduler = make_scheduler()
    first = compute(scheduler, 24)
    second = enqueue(scheduler, 24, arrival=1)
    entry = scheduler.schedule().scheduled[-1]
    assert (entry.sequence, entry.start, entry.num_tokens, entry.samples) == (second, 23, 1, True)
    assert entry.copies == (BlockCopy(first.table.block_id(2), second.table.block_id(2)),)
    assert second.cached_tokens == 23
    assert (scheduler.prefix_query_tokens, scheduler.prefix_hit_tokens) == (48, 23)
    scheduler._kv.register_computed(second.table, second.token_ids, 24)
    assert second.table.block_ids.tolist() == first.table.block_ids[:3].tolist()
    scheduler._kv.check_integrity()


def test_a_cached_block_that_nobody_uses_is_not_written_either() -> None:
    scheduler = make_scheduler()
    first = compute(scheduler, 24)
    held = first.table.block_id(2)
    scheduler.remove(first)
    scheduler._kv.free(first.table)
    second = enqueue(scheduler, 24, arrival=1)
    assert scheduler.schedule().copies == (BlockCopy(held, second.table.block_id(2)),)
    assert second.table.block_id(2) != held
    scheduler._kv.check_integrity()


def test_without_a_block_for_the_copy_the_last_block_is_computed_again() -> None:
    scheduler = make_scheduler(num_blocks=3)
    first = compute(scheduler, 24)
    scheduler.remove(first)
    scheduler._kv.free(first.table)
    second = enqueue(scheduler, 24, arrival=1)
    assert work(scheduler) == [(second, 16, 8)]
    assert second.cached_tokens == 16
    scheduler._kv.check_integrity()
