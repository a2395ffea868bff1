"""Who waits longest and most urgently goes first."""

from __future__ import annotations

import asyncio

import pytest

from common.errors import OverloadedError
from router.waiting_room import WaitingRoom


async def test_turns_go_by_priority_then_arrival() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)
    order: list[str] = []

    async def wait(name: str, priority: int, arrival_s: float) -> None:
        async with room.place(priority, arrival_s) as place:
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
    room = WaitingRoom(asyncio.Event(), capacity=1)
    async with room.place(0, 0.0):
        with pytest.raises(OverloadedError):
            async with room.place(0, 1.0):
                pass
        async with room.place(0, 1.0, begun=True):
            assert len(room) == 2


async def test_who_leaves_is_not_waited_for() -> None:
    changed = asyncio.Event()
    room = WaitingRoom(changed, capacity=8)

    async def wait(arrival_s: float) -> float:
        async with room.place(0, arrival_s) as place:
            await place.wait_turn()
            return arrival_s

    first, second = asyncio.create_task(wait(1.0)), asyncio.create_task(wait(2.0))
    await asyncio.sleep(0.01)
    first.cancel()
    changed.set()
    assert await asyncio.wait_for(second, 5) == 2.0
