"""A request gives back what it took, once, however its caller leaves it."""

from __future__ import annotations

import asyncio

import pytest

from common.errors import InvalidRequestError
from router.generation import AnswerFeed, GenerateEvent
from tests.support.conducting import TIMEOUT_S, Scene, hand_over_to, make_command, token_ids


def outcomes(scene: Scene) -> dict[str, float]:
    samples = [one for family in scene.metrics.registry.collect() for one in family.samples]
    return {one.labels["outcome"]: one.value for one in samples if one.name == "slipstream_requests_total"}


def num_active(scene: Scene) -> float | None:
    return scene.metrics.registry.get_sample_value("slipstream_active_requests")


async def take_all(feed: AnswerFeed, news: asyncio.Event) -> list[GenerateEvent]:
    events: list[GenerateEvent] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not feed.ended:
            await news.wait()
            news.clear()
            while (event := feed.take()) is not None:
                events.append(event)
    return events


async def test_its_place_is_kept_until_everything_was_taken_and_it_is_closed(scene: Scene) -> None:
    scene.prefill.on_submit = hand_over_to(scene.decode, 11, 12)
    news = asyncio.Event()
    feed = scene.core.begin(make_command(), news.set)
    events = await take_all(feed, news)
    assert token_ids(events) == [10, 11, 12]
    assert [event.usage is not None for event in events] == [False] * (len(events) - 1) + [True]
    assert feed.take() is None
    assert (scene.core.gate.num_inside, num_active(scene), outcomes(scene)) == (1, 1, {})
    feed.close()
    feed.close()
    await feed.wait_closed()
    assert (scene.core.gate.num_inside, num_active(scene), outcomes(scene)) == (0, 0, {"length": 1})


async def test_closed_before_it_has_begun_it_leaves_nothing(scene: Scene) -> None:
    told = []
    feed = scene.core.begin(make_command(heartbeat_s=0.001), lambda: told.append(True))
    feed.close()
    await feed.wait_closed()
    assert (scene.core.gate.num_inside, num_active(scene), outcomes(scene)) == (0, 0, {"cancelled": 1})
    await asyncio.sleep(0.01)
    assert told == [] and scene.prefill.submits == [] and not scene.core.answers


async def test_closed_before_its_last_event_it_was_cancelled(scene: Scene) -> None:
    scene.prefill.on_submit = lambda prefill, submit: prefill.tokens(submit.leg, 0, 10)
    news = asyncio.Event()
    feed = scene.core.begin(make_command(), news.set)
    async with asyncio.timeout(TIMEOUT_S):
        while feed.take() is None:
            await news.wait()
            news.clear()
    feed.close()
    await feed.wait_closed()
    assert (scene.core.gate.num_inside, outcomes(scene)) == (0, {"cancelled": 1})
    async with asyncio.timeout(TIMEOUT_S):
        while not scene.prefill.cancels or not scene.decode.cancels:
            await asyncio.sleep(0.01)


async def test_a_failure_is_raised_once_and_is_the_end(scene: Scene) -> None:
    news = asyncio.Event()
    feed = scene.core.begin(make_command(prompt=scene.prompt(512)), news.set)
    with pytest.raises(InvalidRequestError):
        await take_all(feed, news)
    assert feed.ended and feed.take() is None
    feed.close()
    await feed.wait_closed()
    assert (scene.core.gate.num_inside, outcomes(scene)) == (0, {"invalid_argument": 1})
