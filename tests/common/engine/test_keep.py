"""A running choice is stopped with its KV, and goes on in another engine as if nothing had happened."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from common.engine.results import KeptChoice
from common.engine.scheduler_config import SchedulerConfig
from common.engine.scheduler_output import ScheduledSequence
from common.request import Leg, RequestId
from tests.support.engine import HashEngine, expected_outputs, make_leg


def keep(host: HashEngine, leg: Leg, choice_index: int = 0) -> KeptChoice:
    kept = host.engine.keep(leg.request_id, leg.attempt, choice_index)
    host.engine.check_integrity()
    assert kept is not None
    return kept


def send(source: HashEngine, sink: HashEngine, kept: KeptChoice) -> int:
    """What a router and a transport do with a kept choice. Returns the number of blocks sent."""
    moved = replace(kept.leg, attempt=kept.leg.attempt + 1)
    reservation = sink.engine.reserve(moved)
    assert reservation.num_tokens == kept.handed_over.num_computed_tokens
    num_sent = 0
    for blocks, group in zip(kept.blocks, reservation.maps, strict=True):
        assert (blocks.group_id, blocks.first_logical_block) == (group.group_id, 0)
        for own_id, sink_id, present in zip(blocks.block_ids, group.block_ids, group.present, strict=True):
            if not present:
                sink.runner.write_block_bytes(sink_id, source.runner.block_bytes(own_id))
                num_sent += 1
    (choice_index,) = kept.leg.choice_indices
    sink.outputs[kept.leg.request_id, choice_index] = list(source.outputs[kept.leg.request_id, choice_index])
    sink.engine.commit(reservation.reservation_id, kept.handed_over.first_tokens, moved.attempt)
    return num_sent


def release(host: HashEngine, kept: KeptChoice) -> None:
    host.engine.release_lease(kept.leg.request_id, kept.leg.attempt, kept.leg.choice_indices)


def assert_idle(*hosts: HashEngine) -> None:
    for host in hosts:
        integrity = host.engine.check_integrity()
        assert integrity.num_free_blocks == integrity.num_blocks
        assert (integrity.num_reservations, integrity.num_requests) == (0, 0)


@pytest.mark.parametrize("num_prompt_tokens", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("num_steps", [1, 2, 8, 9, 10])
def test_a_moved_choice_ends_with_the_tokens_of_an_undisturbed_one(num_prompt_tokens: int, num_steps: int) -> None:
    source, sink = HashEngine(), HashEngine()
    leg = make_leg(range(num_prompt_tokens), max_tokens=20)
    source.engine.submit(leg)
    for _ in range(num_steps):
        source.step()
    kept = keep(source, leg)
    assert kept.handed_over.num_computed_tokens == num_prompt_tokens + num_steps - 1
    assert send(source, sink, kept) == -(-kept.handed_over.num_computed_tokens // 8)
    release(source, kept)
    source.run()
    sink.run()
    assert sink.outputs[leg.request_id, 0] == expected_outputs(leg, 0, sink.max_model_len)
    assert_idle(source, sink)


def test_a_choice_can_move_again_and_come_back() -> None:
    hosts = (HashEngine(), HashEngine())
    leg = make_leg(range(20), max_tokens=30)
    hosts[0].engine.submit(leg)
    hosts[0].step()
    for turn in range(6):
        source, sink = hosts[turn % 2], hosts[1 - turn % 2]
        for _ in range(turn):
            source.step()
        kept = keep(source, replace(leg, attempt=leg.attempt + turn))
        send(source, sink, kept)
        release(source, kept)
    hosts[0].run()
    assert hosts[0].outputs[leg.request_id, 0] == expected_outputs(leg, 0, hosts[0].max_model_len)
    assert_idle(*hosts)


def test_one_choice_moves_while_its_siblings_stay() -> None:
    source, sink = HashEngine(), HashEngine()
    leg = make_leg(range(20), choices=3, max_tokens=12)
    source.engine.submit(leg)
    source.step()  # the partial last block is still shared by all three
    kept = keep(source, leg, 1)
    assert kept.leg.choice_indices == kept.handed_over.choice_indices == (1,)
    for _ in range(3):
        source.step()
    send(source, sink, kept)
    release(source, kept)
    source.run()
    sink.run()
    for choice_index, host in ((0, source), (1, sink), (2, source)):
        expected = expected_outputs(leg, choice_index, source.max_model_len)
        assert host.outputs[leg.request_id, choice_index] == expected
    assert_idle(source, sink)


def test_a_kept_choice_draws_no_more_and_its_blocks_stay_as_they_are() -> None:
    host = HashEngine(num_blocks=8)
    leg = make_leg(range(20), max_tokens=30)
    host.engine.submit(leg)
    host.step()
    kept = keep(host, leg)
    assert not host.engine.has_work()
    block_ids = kept.blocks[0].block_ids
    before = [host.runner.block_bytes(block_id) for block_id in block_ids]
    other = make_leg(range(100, 120), request_id="other", max_tokens=12)
    host.engine.submit(other)
    host.run()
    assert [host.runner.block_bytes(block_id) for block_id in block_ids] == before
    assert len(host.outputs[leg.request_id, 0]) == 1
    assert host.engine.check_integrity().num_requests == 1
    for _ in range(2):
        release(host, kept)
    assert_idle(host)


def test_releasing_one_kept_choice_leaves_the_other() -> None:
    host = HashEngine()
    leg = make_leg(range(16), choices=2, max_tokens=30)
    host.engine.submit(leg)
    host.step()
    host.step()
    first, second = keep(host, leg, 0), keep(host, leg, 1)
    release(host, first)
    assert host.kv.pool.num_used_blocks == len(second.blocks[0].block_ids)
    release(host, second)
    assert_idle(host)


def test_what_has_no_kv_to_move_is_not_kept() -> None:
    host = HashEngine(config=SchedulerConfig(max_num_batched_tokens=16))
    leg = make_leg(range(40), max_tokens=8)
    host.engine.submit(leg)
    assert host.engine.keep(leg.request_id, 1, 0) is None, "it waits"
    host.step()
    assert host.engine.keep(leg.request_id, 1, 0) is None, "it is in its prompt"
    host.step()
    host.step()
    assert host.engine.keep(leg.request_id, 2, 0) is None, "another attempt"
    assert host.engine.keep(leg.request_id, 1, 1) is None, "another choice"
    assert host.engine.keep(RequestId("other"), 1, 0) is None
    host.run()
    assert host.outputs[leg.request_id, 0] == expected_outputs(leg, 0, host.max_model_len)
    assert host.engine.keep(leg.request_id, 1, 0) is None, "it has ended"
    assert_idle(host)


def test_a_leg_to_hand_over_is_not_kept() -> None:
    host = HashEngine(config=SchedulerConfig(max_num_batched_tokens=16))
    leg = make_leg(range(40), outputs=[5], max_tokens=8)
    host.engine.submit(leg, hand_over=True)
    for _ in range(2):
        host.step()
        assert host.engine.keep(leg.request_id, 1, 0) is None
    host.run()
    host.engine.release_lease(leg.request_id, 1)
    assert_idle(host)


def test_the_result_of_a_step_in_flight_is_dropped_and_drawn_again_elsewhere() -> None:
    source, sink = HashEngine(), HashEngine()
    leg = make_leg(range(20), max_tokens=12)
    source.engine.submit(leg)
    source.step()
    kept: list[KeptChoice] = []

    def keep_in_mid_step(scheduled: Sequence[ScheduledSequence]) -> None:
        source.runner.before_execute = lambda scheduled: None
        kept.append(keep(source, leg))

    source.runner.before_execute = keep_in_mid_step
    assert source.step().tokens == []
    assert kept[0].handed_over.num_computed_tokens == 20
    send(source, sink, kept[0])
    release(source, kept[0])
    sink.run()
    assert sink.outputs[leg.request_id, 0] == expected_outputs(leg, 0, sink.max_model_len)
    assert_idle(source, sink)


def test_a_deadline_or_a_cancel_finds_nothing_of_a_kept_choice() -> None:
    host = HashEngine()
    leg = make_leg(range(20), deadline_s=5.0)
    host.engine.submit(leg)
    host.step()
    kept = keep(host, leg)
    host.now = 6.0
    host.engine.cancel(leg.request_id)
    assert host.step().ends == []
    assert host.engine.check_integrity().num_requests == 1
    release(host, kept)
    assert_idle(host)
