"""Credits are promises against a forecast; blocks are held only from `map_reservation` on."""

from __future__ import annotations

import pytest

from common.engine.block_forecast import BlockEvent, blocks_suffice
from common.engine.scheduler_config import SchedulerConfig
from common.errors import OverloadedError, StaleTicketError
from common.kv.first_token import FirstToken
from tests.support.engine import HashEngine, make_leg


def engine(num_blocks: int, forecast: int = 8) -> HashEngine:
    config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64, output_forecast_tokens=forecast)
    return HashEngine(num_blocks=num_blocks, config=config, hand_back=True)


@pytest.mark.parametrize(
    ("num_free", "needs", "releases", "enough"),
    [
        (5, [(0.0, 3), (0.0, 2)], [], True),
        (5, [(0.0, 3), (0.0, 3)], [], False),
        (0, [(2.0, 3)], [(1.0, 3)], True),
        (0, [(1.0, 3)], [(2.0, 3)], False),  # they come free too late
        (2, [(0.0, 2), (3.0, 4)], [(1.0, 2), (2.0, 2)], True),
        (2, [(0.0, 1), (1.5, 3)], [(1.0, 2), (2.0, 9)], True),
        (2, [(0.0, 1), (1.5, 4)], [(1.0, 2), (2.0, 9)], False),
    ],
)
def test_needs_are_met_in_the_order_of_their_times(
    num_free: int, needs: list[tuple[float, int]], releases: list[tuple[float, int]], enough: bool
) -> None:
    events = [BlockEvent(*need) for need in needs], [BlockEvent(*release) for release in releases]
    assert blocks_suffice(num_free, *events) is enough


def test_a_credit_holds_no_blocks_until_it_is_mapped() -> None:
    host = engine(num_blocks=16)
    reservation = host.engine.reserve(make_leg(range(40)), map_after_s=5.0)
    assert reservation.maps is None
    assert host.engine.load().num_free_blocks == 16
    assert host.engine.load().num_reservations == 1
    (group,) = host.engine.map_reservation(reservation.reservation_id)
    assert len(group.block_ids) == 5
    assert host.engine.load().num_free_blocks == 11
    assert host.engine.map_reservation(reservation.reservation_id) == (group,), "asked again, it is answered alike"
    host.engine.release_reservation(reservation.reservation_id, quarantine=False)
    with pytest.raises(StaleTicketError):
        host.engine.map_reservation(reservation.reservation_id)
    assert host.engine.check_integrity().num_free_blocks == 16


def test_a_credit_that_was_never_mapped_can_not_be_committed() -> None:
    host = engine(num_blocks=16)
    reservation = host.engine.reserve(make_leg(range(40)), map_after_s=5.0)
    first = FirstToken(choice_index=0, token_id=1, finished=False)
    with pytest.raises(StaleTicketError, match="has no blocks"):
        host.engine.commit(reservation.reservation_id, (first,), 1)
    host.engine.release_reservation(reservation.reservation_id, quarantine=False)
    assert host.engine.check_integrity().num_reservations == 0


def test_credits_count_against_each_other() -> None:
    host = engine(num_blocks=16)
    host.engine.reserve(make_leg(range(64), request_id="a"), map_after_s=5.0)  # 8 blocks and 1 for what it will draw
    with pytest.raises(OverloadedError):
        host.engine.reserve(make_leg(range(100, 164), request_id="b"), map_after_s=5.0)
    host.engine.reserve(make_leg(range(100, 140), request_id="c"), map_after_s=5.0)


def test_what_will_have_come_free_by_then_is_promised() -> None:
    host = engine(num_blocks=16)
    running = make_leg(range(64), request_id="a", max_tokens=4)
    host.engine.submit(running)
    host.engine.step()
    assert host.engine.load().num_free_blocks == 8
    long = make_leg(range(100, 164), request_id="b", max_tokens=4)
    with pytest.raises(OverloadedError):
        host.engine.reserve(long)
    reservation = host.engine.reserve(long, map_after_s=1000.0)
    with pytest.raises(OverloadedError):
        host.engine.reserve(make_leg(range(200, 264), request_id="c", max_tokens=4), map_after_s=1000.0)
    host.run()
    assert host.engine.map_reservation(reservation.reservation_id)


def test_a_promise_that_could_not_be_kept_comes_before_newcomers() -> None:
    host = engine(num_blocks=16, forecast=1)
    reservation = host.engine.reserve(make_leg(range(80), request_id="a"), map_after_s=1000.0)  # idle: whatever fits
    host.engine.submit(make_leg(range(100, 170), request_id="b", max_tokens=20, ignore_eos=True))
    host.engine.step()
    with pytest.raises(OverloadedError):
        host.engine.map_reservation(reservation.reservation_id)
    host.engine.submit(make_leg(range(200, 208), request_id="c", max_tokens=4))
    for _ in range(10):
        host.engine.step()
    assert host.engine.load().num_waiting == 1, "a newcomer took blocks that are owed"
    while host.engine.load().num_running:
        host.engine.step()
    assert host.engine.map_reservation(reservation.reservation_id)
    host.engine.step()
    assert host.engine.load().num_waiting == 0
