"""One attempt's messages, taken as they come."""

from __future__ import annotations

import asyncio

import pytest

from common.request import LegKey, RequestId, WorkerId
from router.inbox import Inbox, Message, WorkerDrains, WorkerLost

LOST = WorkerLost(worker_id=WorkerId("one"))
DRAINS = WorkerDrains(worker_id=WorkerId("one"))


def inbox() -> Inbox:
    return Inbox(LegKey(RequestId("r"), 1))


async def test_what_waits_is_taken_before_what_comes() -> None:
    box, told = inbox(), list[Message]()
    box.put(DRAINS)
    following = asyncio.create_task(box.follow(told.append, until=lambda: len(told) == 2))
    await asyncio.sleep(0)
    assert told == [DRAINS]
    box.put(LOST)
    assert told == [DRAINS, LOST]  # at once, by whoever put it
    await following


async def test_what_comes_after_enough_waits_for_the_next_follower() -> None:
    box, told = inbox(), list[Message]()
    following = asyncio.create_task(box.follow(told.append, until=lambda: bool(told)))
    await asyncio.sleep(0)
    box.put(DRAINS)
    box.put(LOST)
    assert told == [DRAINS]
    await following
    await box.follow(told.append, until=lambda: len(told) == 2)
    assert told == [DRAINS, LOST]


async def test_nothing_is_awaited_when_there_is_enough() -> None:
    box, told = inbox(), list[Message]()
    box.put(DRAINS)
    await box.follow(told.append, until=lambda: True)
    assert told == []


async def test_what_taking_raises_reaches_the_follower_and_not_who_puts() -> None:
    def refuse(message: Message) -> None:
        raise ValueError("no")

    box = inbox()
    following = asyncio.create_task(box.follow(refuse, until=lambda: False))
    await asyncio.sleep(0)
    box.put(DRAINS)
    with pytest.raises(ValueError, match="no"):
        await following


async def test_a_follower_that_was_cancelled_takes_nothing() -> None:
    box, told = inbox(), list[Message]()
    following = asyncio.create_task(box.follow(told.append, until=lambda: False))
    await asyncio.sleep(0)
    following.cancel()
    box.put(DRAINS)
    await asyncio.gather(following, return_exceptions=True)
    assert told == []
    await box.follow(told.append, until=lambda: bool(told))
    assert told == [DRAINS]
