"""Hand-over between two engines, by hand: what a transport does, block by block."""

import pytest

from common.engine.results import HandedOver, LegEndReason, Reservation
from common.engine.scheduler_config import SchedulerConfig
from common.errors import InvalidRequestError, OverloadedError, StaleTicketError, TransferError
from common.kv.first_token import FirstToken
from common.request import FinishReason, Leg, RequestId
from tests.support.engine import HashEngine, expected_outputs, make_leg


def prefill(host: HashEngine, leg: Leg) -> HandedOver | None:
    """Runs a leg to its first tokens."""
    host.engine.submit(leg, hand_over=True)
    host.run()
    handed_over = host.steps[-1].handed_over
    return handed_over[0] if handed_over else None


def send(source: HashEngine, sink: HashEngine, leg: Leg, reservation: Reservation) -> int:
    """Copies the blocks that the sink lacks. Returns how many."""
    (group,) = reservation.maps
    num_sent = 0
    for step in source.steps:
        for computed in step.computed:
            if computed.request_id != leg.request_id:
                continue
            for offset, block_id in enumerate(computed.block_ids):
                logical_block = computed.first_logical_block + offset
                if not group.present[logical_block]:
                    data = source.runner.block_bytes(block_id)
                    sink.runner.write_block_bytes(group.block_ids[logical_block], data)
                    num_sent += 1
    return num_sent


def move(source: HashEngine, sink: HashEngine, leg: Leg) -> int:
    """The whole of a hand-over. Returns the number of blocks sent."""
    reservation = sink.engine.reserve(leg)
    handed_over = prefill(source, leg)
    assert handed_over is not None
    assert handed_over.num_computed_tokens == reservation.num_tokens
    num_sent = send(source, sink, leg, reservation)
    for output in source.steps[-1].tokens:
        sink.outputs[output.request_id, output.choice_index] = [*leg.output_token_ids, *output.token_ids]
    sink.engine.commit(reservation.reservation_id, handed_over.first_tokens, leg.attempt)
    source.engine.release_lease(leg.request_id, leg.attempt)
    return num_sent


def assert_idle(*hosts: HashEngine) -> None:
    for host in hosts:
        integrity = host.engine.check_integrity()
        assert integrity.num_free_blocks == integrity.num_blocks
        assert (integrity.num_reservations, integrity.num_requests) == (0, 0)


@pytest.mark.parametrize("num_prompt_tokens", [1, 7, 8, 9, 16, 50])
@pytest.mark.parametrize("num_choices", [1, 3])
def test_split_equals_undisturbed(num_prompt_tokens: int, num_choices: int) -> None:
    source, sink = HashEngine(), HashEngine(hand_back=True)
    leg = make_leg(range(num_prompt_tokens), choices=num_choices, max_tokens=20)
    assert move(source, sink, leg) == -(-num_prompt_tokens // 8)
    sink.run()
    for choice_index in range(num_choices):
        assert sink.outputs[leg.request_id, choice_index] == expected_outputs(leg, choice_index, sink.max_model_len)
    assert_idle(source, sink)


def test_chunks_are_reported_as_they_are_computed() -> None:
    source = HashEngine(config=SchedulerConfig(max_num_batched_tokens=16))
    prefill(source, make_leg(range(44)))
    reported = [(c.first_logical_block, len(c.block_ids)) for step in source.steps for c in step.computed]
    assert reported == [(0, 2), (2, 2), (4, 2)]


def test_what_the_source_has_cached_is_reported_with_its_first_step() -> None:
    source = HashEngine()
    prefill(source, make_leg(range(40), request_id="a"))
    prefill(source, make_leg(range(40), request_id="b"))
    reported = [(c.first_logical_block, len(c.block_ids)) for c in source.steps[-1].computed]
    assert reported == [(0, 5)]


def test_what_the_sink_has_is_not_sent_again() -> None:
    source, sink = HashEngine(), HashEngine()
    for request_id, num_sent in (("a", 5), ("b", 0)):
        leg = make_leg(range(40), request_id=request_id, max_tokens=9)
        assert move(source, sink, leg) == num_sent
        sink.run()
        assert sink.outputs[leg.request_id, 0] == expected_outputs(leg, 0, sink.max_model_len)
    leg = make_leg([*range(30), 500], request_id="c")
    assert move(source, sink, leg) == 1
    sink.run()
    assert sink.outputs[leg.request_id, 0] == expected_outputs(leg, 0, sink.max_model_len)


def test_a_corrupted_block_changes_the_tokens() -> None:
    source, sink = HashEngine(), HashEngine()
    leg = make_leg(range(20))
    reservation = sink.engine.reserve(leg)
    handed_over = prefill(source, leg)
    assert handed_over is not None
    send(source, sink, leg, reservation)
    last = reservation.maps[0].block_ids[-1]
    sink.runner.write_block_bytes(last, bytes(64))
    sink.engine.commit(reservation.reservation_id, handed_over.first_tokens, 1)
    sink.run()
    assert sink.outputs[leg.request_id, 0][1:] != expected_outputs(leg, 0, sink.max_model_len)[1:]


def test_blocks_stay_as_they_are_until_the_lease_is_released() -> None:
    source = HashEngine(num_blocks=8)
    prefill(source, make_leg(range(40), request_id="a"))
    before = [source.runner.block_bytes(b) for c in source.steps[-1].computed for b in c.block_ids]
    source.engine.submit(make_leg(range(100, 140), request_id="b"), hand_over=True)
    assert source.step().num_scheduled_tokens == 0, "there is no room while the lease lasts"
    first = source.steps[0].computed[0]
    assert [source.runner.block_bytes(b) for b in first.block_ids] == before
    source.engine.release_lease(RequestId("a"), 1)
    source.engine.release_lease(RequestId("a"), 1)
    assert source.step().num_scheduled_tokens == 40


def test_a_cancelled_leg_keeps_its_reported_blocks_leased() -> None:
    source = HashEngine(config=SchedulerConfig(max_num_batched_tokens=16))
    source.engine.submit(make_leg(range(40)), hand_over=True)
    source.step()
    source.engine.cancel(RequestId("r"))
    assert source.step().ends[0].reason is LegEndReason.CANCELLED
    assert source.engine.check_integrity().num_used_blocks == 5
    source.engine.release_lease(RequestId("r"), 1)
    assert_idle(source)


def test_a_lease_released_early_leaves_nothing_behind() -> None:
    source = HashEngine(config=SchedulerConfig(max_num_batched_tokens=16))
    source.engine.submit(make_leg(range(40)), hand_over=True)
    source.step()
    source.engine.release_lease(RequestId("r"), 1)
    source.run()
    assert_idle(source)


def test_a_leg_that_ends_with_its_first_token_is_not_handed_over() -> None:
    source = HashEngine()
    assert prefill(source, make_leg(range(20), max_tokens=1)) is None
    assert source.steps[-1].tokens[0].finish_reason is FinishReason.LENGTH
    source.engine.release_lease(RequestId("r"), 1)
    assert_idle(source)


def test_choices_that_ended_with_their_first_token_are_not_decoded() -> None:
    source, sink = HashEngine(), HashEngine()
    leg = make_leg(range(20), choices=3, max_tokens=6)
    stop = expected_outputs(leg, 1, sink.max_model_len)[0]
    leg = make_leg(range(20), choices=3, max_tokens=6, stop_token_ids=(stop,))
    move(source, sink, leg)
    sink.run()
    assert sink.outputs[leg.request_id, 1] == [stop]
    for choice_index in (0, 2):
        assert sink.outputs[leg.request_id, choice_index] == expected_outputs(leg, choice_index, sink.max_model_len)


def test_a_migration_goes_on_where_the_outputs_end() -> None:
    source, sink = HashEngine(), HashEngine()
    undisturbed = expected_outputs(make_leg(range(20), max_tokens=20), 0, sink.max_model_len)
    leg = make_leg(range(20), outputs=undisturbed[:7], attempt=2, max_tokens=20)
    move(source, sink, leg)
    sink.run()
    assert sink.outputs[leg.request_id, 0] == undisturbed


def test_a_released_reservation_gives_everything_back() -> None:
    sink = HashEngine()
    reservation = sink.engine.reserve(make_leg(range(20)))
    assert sink.engine.load().num_reservations == 1
    for _ in range(2):
        sink.engine.release_reservation(reservation.reservation_id, quarantine=False)
    assert_idle(sink)


def test_a_quarantined_reservation_holds_the_blocks_that_may_be_written() -> None:
    source, sink = HashEngine(), HashEngine()
    move(source, sink, make_leg(range(16), request_id="a"))
    sink.run()
    reservation = sink.engine.reserve(make_leg(range(40), request_id="b"))
    assert reservation.cached_blocks == 2
    for _ in range(2):
        sink.engine.release_reservation(reservation.reservation_id, quarantine=True)
    integrity = sink.engine.check_integrity()
    assert (integrity.num_quarantined_blocks, integrity.num_used_blocks, integrity.num_reservations) == (3, 0, 1)
    for _ in range(2):
        sink.engine.end_quarantine(reservation.reservation_id)
    assert_idle(sink)


def test_a_choice_cancelled_while_its_kv_is_on_its_way_does_not_start() -> None:
    source, sink = HashEngine(), HashEngine()
    leg = make_leg(range(20), choices=2, max_tokens=6)
    reservation = sink.engine.reserve(leg)
    handed_over = prefill(source, leg)
    assert handed_over is not None
    sink.engine.cancel(leg.request_id, 1, (1,))
    sink.engine.commit(reservation.reservation_id, handed_over.first_tokens, 1)
    sink.run()
    assert [end.choice_indices for step in sink.steps for end in step.ends] == [(1,)]
    assert (leg.request_id, 1) not in sink.outputs
    assert_idle(sink)


def test_a_commit_must_fit_its_reservation() -> None:
    sink = HashEngine()
    reservation = sink.engine.reserve(make_leg(range(20)))
    token = FirstToken(choice_index=0, token_id=5, finished=False)
    with pytest.raises(StaleTicketError):
        sink.engine.commit(reservation.reservation_id, [token], 2)
    with pytest.raises(StaleTicketError):
        sink.engine.commit("another", [token], 1)
    sink.engine.commit(reservation.reservation_id, [token], 1)
    with pytest.raises(StaleTicketError):
        sink.engine.commit(reservation.reservation_id, [token], 1)


@pytest.mark.parametrize(
    "first_tokens",
    [
        [],
        [FirstToken(choice_index=0, token_id=5, finished=False)] * 2,
        [FirstToken(choice_index=1, token_id=5, finished=False)],
        [FirstToken(choice_index=0, token_id=-1, finished=False)],
    ],
)
def test_first_tokens_that_do_not_fit_end_the_reservation(first_tokens: list[FirstToken]) -> None:
    sink = HashEngine()
    reservation = sink.engine.reserve(make_leg(range(20)))
    with pytest.raises(TransferError):
        sink.engine.commit(reservation.reservation_id, first_tokens, 1)
    assert_idle(sink)


def test_an_arrival_for_an_older_attempt_ends_its_reservation() -> None:
    sink = HashEngine()
    reservation = sink.engine.reserve(make_leg(range(20), attempt=1))
    sink.engine.submit(make_leg(range(20), attempt=2))
    with pytest.raises(InvalidRequestError, match="attempt"):
        sink.engine.commit(reservation.reservation_id, [FirstToken(choice_index=0, token_id=5, finished=False)], 1)
    sink.run()
    assert_idle(sink)


def test_reservations_are_refused_when_outputs_would_not_fit() -> None:
    sink = HashEngine(num_blocks=8)
    sink.engine.reserve(make_leg(range(16), request_id="a", max_tokens=16))
    with pytest.raises(OverloadedError):
        sink.engine.reserve(make_leg(range(100, 124), request_id="b", max_tokens=16))
    sink.engine.reserve(make_leg(range(100, 116), request_id="c", max_tokens=16))


def test_an_idle_engine_takes_whatever_fits() -> None:
    sink = HashEngine(num_blocks=4)
    assert sink.engine.reserve(make_leg(range(25), max_tokens=None)).credit_tokens > 25


def test_reservations_are_refused_when_the_batch_is_full() -> None:
    sink = HashEngine(config=SchedulerConfig(max_num_seqs=3))
    sink.engine.reserve(make_leg(range(8), request_id="a", choices=2))
    with pytest.raises(OverloadedError):
        sink.engine.reserve(make_leg(range(8), request_id="b", choices=2))
    sink.engine.reserve(make_leg(range(8), request_id="c"))


def test_the_same_content_arriving_twice_ends_in_one_copy() -> None:
    source, sink = HashEngine(), HashEngine()
    legs = [make_leg(range(16), request_id=request_id, max_tokens=5) for request_id in "ab"]
    reservations = [sink.engine.reserve(leg) for leg in legs]
    for leg, reservation in zip(legs, reservations, strict=True):
        handed_over = prefill(source, leg)
        assert handed_over is not None
        send(source, sink, leg, reservation)
        sink.engine.commit(reservation.reservation_id, handed_over.first_tokens, 1)
    assert sink.kv.pool.num_used_blocks == 2
    sink.run()
    for leg in legs:
        assert sink.outputs[leg.request_id, 0][1:] == expected_outputs(leg, 0, sink.max_model_len)[1:]
