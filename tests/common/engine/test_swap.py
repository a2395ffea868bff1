"""Sequences that must give way wait on the host with their KV, and go on as if nothing had happened."""

from dataclasses import replace

import pytest

from common.engine.results import LegEndReason
from common.engine.scheduler_config import SchedulerConfig
from common.errors import OverloadedError
from common.request import Leg, RequestId
from tests.support.engine import HashEngine, expected_outputs, make_leg


def short_of_blocks(num_host_blocks: int = 20, *, hand_back: bool = True, **options: object) -> HashEngine:
    """Ten blocks of eight tokens."""
    return HashEngine(num_blocks=10, num_host_blocks=num_host_blocks, hand_back=hand_back, **options)  # type: ignore[arg-type]


def three_legs(**sampling: object) -> list[Leg]:
    """More than ten blocks when they are done: 42 tokens each."""
    return [
        make_leg(range(first, first + 12), request_id=f"r{first}", **{"max_tokens": 30, **sampling})  # type: ignore[arg-type]
        for first in (0, 100, 200)
    ]


def submit_all(host: HashEngine, legs: list[Leg]) -> None:
    for leg in legs:
        host.engine.submit(leg)


def step_until_swapped(host: HashEngine) -> None:
    while not host.engine.load().num_swapped:
        host.step()


def assert_exact(host: HashEngine, legs: list[Leg]) -> None:
    for leg in legs:
        for choice_index in leg.choice_indices:
            expected = expected_outputs(leg, choice_index, host.max_model_len)
            assert host.outputs[leg.request_id, choice_index] == expected


def assert_idle(host: HashEngine) -> None:
    integrity = host.engine.check_integrity()
    assert integrity.num_free_blocks == integrity.num_blocks
    assert (integrity.num_reservations, integrity.num_requests, integrity.num_used_host_blocks) == (0, 0, 0)


@pytest.mark.parametrize("hand_back", [False, True])
def test_all_answers_are_exact_and_nothing_is_computed_twice(hand_back: bool) -> None:
    host = short_of_blocks(hand_back=hand_back)
    legs = three_legs()
    submit_all(host, legs)
    host.run()
    load = host.engine.load()
    assert load.num_swap_outs > 0
    assert load.swapped_in_blocks > 0
    assert load.num_preemptions == 0
    assert load.num_prefilled_tokens == 36
    assert load.num_generated_tokens == 90
    assert sum(step.num_scheduled_tokens for step in host.steps) == 36 + 3 * 29
    assert host.results("ends") == []
    assert_exact(host, legs)
    assert_idle(host)


def test_the_youngest_gives_way_and_comes_back_before_anything_new() -> None:
    host = short_of_blocks(hand_back=False)
    legs = three_legs()
    submit_all(host, legs)
    step_until_swapped(host)
    new = make_leg([900], request_id="new", priority=-1, max_tokens=2)
    host.engine.submit(new)
    while host.engine.load().num_swapped:
        assert (RequestId("new"), 0) not in host.outputs
        host.step()
        assert host.engine.load().num_waiting == 1 or not host.engine.load().num_swapped
    assert min(map(len, (host.outputs[leg.request_id, 0] for leg in legs[:2]))) == 30, "the older two went on"
    host.run()
    assert_exact(host, [*legs, new])
    assert_idle(host)


def test_a_host_without_room_hands_back() -> None:
    host = short_of_blocks(num_host_blocks=2)
    legs = three_legs(max_tokens=24)
    submit_all(host, legs)
    host.run()
    ends = [end for step in host.steps for end in step.ends]
    assert {(end.request_id, end.reason) for end in ends} == {("r200", LegEndReason.PREEMPTED)}
    load = host.engine.load()
    assert (load.num_preemptions, load.num_swap_outs) == (1, 0)
    assert_exact(host, legs[:2])
    assert_idle(host)


def test_a_host_without_room_leaves_a_lone_worker_to_compute_again() -> None:
    host = short_of_blocks(num_host_blocks=2, hand_back=False)
    legs = three_legs()
    submit_all(host, legs)
    host.run()
    assert host.engine.load().num_preemptions > 0
    assert_exact(host, legs)
    assert_idle(host)


def test_choices_of_one_request_share_their_prompt_on_the_host_too() -> None:
    host = short_of_blocks()
    leg = make_leg(range(16), choices=4, max_tokens=30)
    host.engine.submit(leg)
    host.step()
    while host.engine.load().num_swapped < 2:
        host.step()
    load = host.engine.load()
    private = load.swapped_out_blocks - 2  # the prompt's two full blocks went once
    assert load.num_host_blocks - load.num_free_host_blocks == 2 + private
    host.run()
    assert_exact(host, [leg])
    assert_idle(host)


def test_prefix_blocks_that_the_device_still_caches_are_not_copied_back() -> None:
    host = short_of_blocks(hand_back=False)
    legs = [
        make_leg([*range(24), 100 + index], request_id=f"r{index}", max_tokens=24) for index in range(2)
    ]  # three full blocks in common
    legs.append(make_leg(range(200, 210), request_id="r2", max_tokens=20))
    submit_all(host, legs)
    host.run()
    load = host.engine.load()
    assert load.num_swap_outs > 0
    assert load.swapped_in_blocks < load.swapped_out_blocks
    assert_exact(host, legs)
    assert_idle(host)


def test_a_victim_whose_copy_on_write_was_not_made_yet_keeps_what_it_shared() -> None:
    # Two choices part in the very step in which the pool is full: one copies the shared block and is then chosen.
    for num_prompt_tokens in range(9, 16):
        host = HashEngine(num_blocks=8, num_host_blocks=20, hand_back=False)
        legs = [
            make_leg(range(num_prompt_tokens), request_id="parting", choices=3, max_tokens=20),
            make_leg(range(500, 530), request_id="growing", priority=-1, max_tokens=20),
        ]
        submit_all(host, legs)
        host.run()
        assert host.engine.load().num_swap_outs > 0
        assert_exact(host, legs)
        assert_idle(host)


def test_a_prompt_under_way_comes_back_where_it_was() -> None:
    host = HashEngine(
        num_blocks=10, num_host_blocks=20, hand_back=True, config=SchedulerConfig(max_num_batched_tokens=4)
    )
    decoding = make_leg(range(15), request_id="decoding", max_tokens=40)
    host.engine.submit(decoding)
    while not host.outputs:
        host.step()
    long = make_leg(range(100, 156), request_id="long", max_tokens=3)
    host.engine.submit(long)
    while host.engine.load().num_swap_outs == 0:
        host.step()
    assert host.engine.load().num_prefilled_tokens < 15 + 56
    host.run()
    assert host.engine.load().num_prefilled_tokens == 15 + 56
    assert_exact(host, [decoding, long])
    assert_idle(host)


def test_a_cancelled_or_late_sequence_leaves_the_host() -> None:
    host = short_of_blocks()
    legs = three_legs(max_tokens=60)
    submit_all(host, [*legs[:2], replace(legs[2], deadline_s=5.0)])
    step_until_swapped(host)
    assert host.engine.check_integrity().num_used_host_blocks > 0
    host.now = 6.0
    assert [end.reason for end in host.step().ends] == [LegEndReason.DEADLINE]
    assert host.engine.check_integrity().num_used_host_blocks == 0
    step_until_swapped(host)
    for leg in legs:
        host.engine.cancel(leg.request_id)
    assert host.engine.check_integrity().num_used_host_blocks == 0
    host.run()
    assert_idle(host)


def test_no_credit_is_granted_while_sequences_wait_on_the_host() -> None:
    host = short_of_blocks(config=SchedulerConfig(output_forecast_tokens=1))
    submit_all(host, three_legs())
    step_until_swapped(host)
    with pytest.raises(OverloadedError):
        host.engine.reserve(make_leg(range(300, 316), request_id="new"))
    host.run()
    host.engine.reserve(make_leg(range(300, 316), request_id="new"))


def test_a_swapped_choice_can_be_kept_and_moves_from_the_host() -> None:
    source, sink = short_of_blocks(), HashEngine()
    legs = three_legs()
    submit_all(source, legs)
    step_until_swapped(source)
    used_before = source.kv.pool.num_used_blocks
    kept = source.engine.keep(legs[2].request_id, 1, 0)
    assert kept is not None
    assert min(kept.blocks[0].block_ids) >= 10, "host blocks"
    assert source.kv.pool.num_used_blocks == used_before
    reservation = sink.engine.reserve(replace(kept.leg, attempt=2))
    for own_id, sink_id in zip(kept.blocks[0].block_ids, reservation.maps[0].block_ids, strict=True):
        sink.runner.write_block_bytes(sink_id, source.runner.block_bytes(own_id))
    sink.outputs[legs[2].request_id, 0] = list(source.outputs[legs[2].request_id, 0])
    sink.engine.commit(reservation.reservation_id, kept.handed_over.first_tokens, 2)
    source.run()
    assert source.engine.check_integrity().num_used_host_blocks > 0, "leased"
    source.engine.release_lease(legs[2].request_id, 1, (0,))
    sink.run()
    assert_exact(source, legs[:2])
    assert_exact(sink, legs[2:])
    assert_idle(source)
    assert_idle(sink)


def test_kv_that_was_lost_on_the_host_changes_the_tokens() -> None:
    host = short_of_blocks()
    legs = three_legs()
    submit_all(host, legs)
    step_until_swapped(host)
    host.runner.slots[10 * 8 :] = 0
    host.run()
    expected = expected_outputs(legs[2], 0, host.max_model_len)
    assert host.outputs[legs[2].request_id, 0] != expected, "else these tests prove nothing"


def test_a_forgotten_prefix_cache_does_not_matter_to_the_host() -> None:
    host = short_of_blocks()
    legs = three_legs()
    submit_all(host, legs)
    step_until_swapped(host)
    host.engine.reset_prefix_cache()
    host.run()
    assert_exact(host, legs)
    assert_idle(host)
