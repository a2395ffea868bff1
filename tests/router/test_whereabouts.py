"""A router tells where each of its requests is."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from protos import admin_pb2
from router.api.admin import RouterAdminServicer
from router.decision_log import DecisionLog
from router.fleet import Fleet
from router.planning.roster import Roster
from tests.support.conducting import HANDED_OVER, TIMEOUT_S, Scene


class Place(NamedTuple):
    stage: str
    output_tokens: int
    prefill_worker: str
    decode_worker: str


async def places(scene: Scene) -> list[Place]:
    admin: Any = RouterAdminServicer(
        Fleet("router", "model", Roster()), DecisionLog(), scene.core.answers, admin_pb2.RouterStatus
    )
    response = await admin.ListRequests(admin_pb2.ListRequestsRequest(), context=None)
    return [
        Place(
            admin_pb2.RequestStage.Name(one.stage).removeprefix("REQUEST_STAGE_"),
            one.output_tokens,
            one.prefill_worker,
            one.decode_worker,
        )
        for one in response.requests
    ]


async def wait_for(scene: Scene, *wanted: Place) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while await places(scene) != [*wanted]:
            await asyncio.sleep(0.01)


async def test_a_request_is_followed_from_stage_to_stage(scene: Scene) -> None:
    asking = asyncio.create_task(scene.ask())
    await wait_for(scene, Place("PREFILLING", 0, "prefill", "decode-a"))
    leg = scene.prefill.submits[0].leg
    scene.prefill.tokens(leg, 0, 10)
    await wait_for(scene, Place("HANDING_OVER", 1, "prefill", "decode-a"))
    scene.prefill.end(leg, HANDED_OVER)
    await wait_for(scene, Place("DECODING", 1, "prefill", "decode-a"))
    scene.decode.tokens(leg, 1, 11, 12, finish=True)
    await asking
    assert await places(scene) == []


async def test_a_request_waits_in_the_queue_while_all_refuse(scene: Scene) -> None:
    scene.decode.num_refusals = scene.other_decode.num_refusals = 10_000
    asking = asyncio.create_task(scene.ask())
    await wait_for(scene, Place("QUEUED", 0, "", ""))
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await scene.background.close()
    assert await places(scene) == []


async def test_choices_that_part_are_told_apart(scene: Scene) -> None:
    asking = asyncio.create_task(scene.ask(n=2))
    await wait_for(scene, Place("PREFILLING", 0, "prefill", "decode-a"))
    leg = scene.prefill.submits[0].leg
    for choice in (0, 1):
        scene.prefill.tokens(leg, 0, 10, choice=choice)
    scene.prefill.end(leg, HANDED_OVER)
    await wait_for(scene, Place("DECODING", 1, "prefill", "decode-a"))
    scene.decode.drop_stream()  # each choice goes on alone
    async with asyncio.timeout(TIMEOUT_S):
        while len(scene.prefill.submits) < 3:
            await asyncio.sleep(0.01)
    assert [place.stage for place in await places(scene)] == ["PREFILLING", "PREFILLING"]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await scene.background.close()
