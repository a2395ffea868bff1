"""Who waits longest and most urgently goes first."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from common.errors import OverloadedError
from common.request import SamplingParams
from router.pace import MIN_TURNS
from router.waiting_room import Pin, Place, WaitingRoom


async def test_turns_go_by_priority_then_arrival() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)
    order: list[str] = []

    async def wait(name: str, priority: int, arrival_s: float) -> None:
        with room.place(priority, arrival_s) as place:
            await place.wait_turn()
            order.append(name)

    async with asyncio.TaskGroup() as group:
        for name, priority, arrival_s in (
            ("late", 0, 3.0),
            ("patient", 5, 1.0),
            ("early", 0, 2.0),
            ("urgent", -1, 4.0),
        ):
            group.create_task(wait(name, priority, arrival_s))
        for _ in range(4):
            await asyncio.sleep(0.01)
            changed.set()
    assert order == ["urgent", "early", "late", "patient"]
    assert len(room) == 0


async def test_full_room_refuses() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=1)
    with room.place(0, 0.0) as first, room.place(0, 1.0) as second, room.place(0, 1.0, begun=True) as begun:
        waiting = asyncio.create_task(first.wait_turn())
        await asyncio.sleep(0.01)
        with pytest.raises(OverloadedError):
            await second.wait_turn()
        later = asyncio.create_task(begun.wait_turn())
        await asyncio.sleep(0.01)
        assert len(room) == 2
        changed.set()
        await waiting
        later.cancel()
    assert len(room) == 0


async def test_who_leaves_is_not_waited_for() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)

    async def wait(arrival_s: float) -> float:
        with room.place(0, arrival_s) as place:
            await place.wait_turn()
            return arrival_s

    first, second = asyncio.create_task(wait(1.0)), asyncio.create_task(wait(2.0))
    await asyncio.sleep(0.01)
    first.cancel()
    changed.set()
    assert await asyncio.wait_for(second, 5) == 2.0


async def took_turn(place: Place, changed: asyncio.Event, within_s: float = 0.1) -> bool:
    """Whether a turn comes when a worker's load moves."""
    waiting = asyncio.create_task(place.wait_turn())
    await asyncio.sleep(0.01)
    changed.set()
    done, _ = await asyncio.wait((waiting,), timeout=within_s)
    waiting.cancel()
    return bool(done)


async def test_who_tries_keeps_his_place() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)
    with room.place(0, 1.0) as first, room.place(0, 2.0) as second:
        assert await took_turn(first, changed)
        assert second.others_wait
        assert not await took_turn(second, changed)
        first.leave()
        assert await took_turn(second, changed)


async def test_who_is_refused_late_stands_where_he_stood() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)
    with room.place(0, 1.0) as first, room.place(0, 2.0) as second, room.place(-1, 3.0) as urgent:
        assert await took_turn(first, changed)
        assert await took_turn(urgent, changed)
        first.leave()
        assert not await took_turn(second, changed)
        assert not await took_turn(first, changed)
        urgent.leave()
        assert not await took_turn(second, changed)
        assert await took_turn(first, changed)
    assert len(room) == 0


async def test_the_pinned_wait_in_a_line_of_their_own() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)
    pin = Pin(decode_worker="d0")
    with room.place(0, 1.0, pin=pin) as pinned, room.place(0, 2.0) as free, room.place(0, 3.0, pin=pin) as next_pinned:
        assert await took_turn(pinned, changed)
        assert not free.others_wait
        assert await took_turn(free, changed)
        assert next_pinned.others_wait
        assert not await took_turn(next_pinned, changed)


async def test_what_would_wait_in_vain_is_refused_with_a_hint() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=64)
    greedy = SamplingParams(max_tokens=1)
    now_s = time.monotonic()
    room.pace.begin(now_s - 1.6)
    for number in range(MIN_TURNS):  # ten a second
        room.pace.note_turn(now_s - 1.6 + 0.1 * (number + 1))
    room.check_deadline(0, now_s, 0.01, greedy)  # nobody waits
    with contextlib.ExitStack() as stack:
        waiting = [asyncio.create_task(stack.enter_context(room.place(0, now_s - 1)).wait_turn()) for _ in range(9)]
        await asyncio.sleep(0)
        room.check_deadline(0, now_s, 2.0, greedy)
        room.check_deadline(-1, now_s, 0.5, greedy)  # goes before them
        with pytest.raises(OverloadedError, match="9 wait") as caught:
            room.check_deadline(0, now_s, 0.8, greedy)
        assert 0.5 < caught.value.retry_after_s < 2.0
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_only_who_found_room_sets_the_pace() -> None:
    room = WaitingRoom(asyncio.Event(), capacity=64)
    for _ in range(MIN_TURNS):
        with room.place(0, 0.0) as place:
            waiting = asyncio.create_task(place.wait_turn())
            await asyncio.sleep(0)
            waiting.cancel()
    assert room.pace.turn_s(time.monotonic()) is None
    for _ in range(MIN_TURNS):
        with room.place(0, 0.0) as place:
            waiting = asyncio.create_task(place.wait_turn())
            await asyncio.sleep(0)
            place.taken()
            waiting.cancel()
    assert room.pace.turn_s(time.monotonic()) is not None


@pytest.mark.parametrize("num_turns", range(6))
async def test_whoever_is_cancelled_just_when_his_turn_comes_leaves(num_turns: int) -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=4)
    with room.place(0, time.monotonic()) as place:
        waiting = asyncio.create_task(place.wait_turn(time.monotonic() + 1000.0))
        await asyncio.sleep(0.01)
        changed.set()
        for _ in range(num_turns):
            await asyncio.sleep(0)
        waiting.cancel()
        done, _ = await asyncio.wait({waiting}, timeout=5.0)
        assert done, "the cancellation was lost"
        assert waiting.cancelled()
