"""Who may enter, and how the last ones leave."""

from __future__ import annotations

import asyncio

import pytest

from common.errors import DrainingError, OverloadedError
from router.gate import Gate
from router.generation import GenerateEvent, events_of
from tests.support.conducting import Scene, hand_over_to, make_command, token_ids


def test_the_limit_is_twice_as_high_for_what_has_begun_elsewhere() -> None:
    gate = Gate(2)
    for _ in range(2):
        gate.enter(resumed=False)
    with pytest.raises(OverloadedError, match="2 requests are active"):
        gate.enter(resumed=False)
    for _ in range(2):
        gate.enter(resumed=True)
    with pytest.raises(OverloadedError, match="4 requests are active"):
        gate.enter(resumed=True)
    gate.leave()
    gate.enter(resumed=True)


async def test_a_draining_router_takes_nothing_and_finishes_what_runs(scene: Scene) -> None:
    running = asyncio.create_task(scene.ask())
    await until_submitted(scene)
    draining = asyncio.create_task(scene.core.gate.drain(5.0))
    await asyncio.sleep(0)
    with pytest.raises(DrainingError):
        await scene.ask()
    submit = scene.prefill.submits[0]
    hand_over_to(scene.decode, 11, 12)(scene.prefill, submit)
    assert token_ids(await running) == [10, 11, 12]
    assert await draining


async def test_what_does_not_end_in_time_is_cut_off_with_its_tokens_told(scene: Scene) -> None:
    events: list[GenerateEvent] = []

    async def ask() -> None:
        async for event in events_of(scene.core, make_command()):
            events.append(event)  # noqa: PERF401, for they are looked at before the last one comes

    running = asyncio.create_task(ask())
    await until_submitted(scene)
    scene.prefill.tokens(scene.prefill.submits[0].leg, 0, 10)
    while not events:
        await asyncio.sleep(0.01)
    assert not await scene.core.gate.drain(0.05)
    with pytest.raises(DrainingError, match="go on at another one"):
        await running
    assert token_ids(events) == [10]
    async with asyncio.timeout(5):
        while not scene.prefill.cancels:
            await asyncio.sleep(0.01)


async def until_submitted(scene: Scene) -> None:
    async with asyncio.timeout(5):
        while not scene.prefill.submits:
            await asyncio.sleep(0.01)
