"""Whoever waits for a full decode worker gets there, however much room he needs and whoever comes after him."""

from __future__ import annotations

import asyncio

from common.errors import OverloadedError
from protos import worker_pb2
from router.generation import RouteHint
from tests.support.conducting import TIMEOUT_S, Scene, hand_over_to, token_ids
from tests.support.scripted_worker import ScriptedWorker

CAPACITY = 8  # prompt tokens that the decode worker holds
WORK_S = 0.02  # for so long a request holds its room


class Room:
    """The one decode worker's blocks, in prompt tokens; the other one takes nothing."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.num_taken = 0
        self.full = False
        scene.decode.on_reserve = self._take
        scene.other_decode.num_refusals = 1_000_000
        scene.prefill.on_submit = self._answer

    def _take(self, request: worker_pb2.ReserveRequest) -> None:
        num_tokens = len(request.leg.prompt_token_ids)
        if self.full or self.num_taken + num_tokens > CAPACITY:
            raise OverloadedError("no room")
        self.num_taken += num_tokens

    def _answer(self, prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        def end() -> None:
            self.num_taken -= len(submit.leg.prompt_token_ids)
            hand_over_to(self._scene.decode, 11, 12)(prefill, submit)
            self._scene.decode.report_load()

        asyncio.get_running_loop().call_later(WORK_S, end)


async def test_a_large_request_gets_its_room_among_small_ones(scene: Scene) -> None:
    room = Room(scene)
    small = scene.prompt(1)
    stop = asyncio.Event()

    async def ask_without_end(number: int) -> None:
        await asyncio.sleep(number * WORK_S / 10)  # so that room never comes free all at once
        while not stop.is_set():
            await scene.ask(prompt=small)

    # Ten that want one place of eight: there is always somebody to take what comes free.
    asking = [asyncio.create_task(ask_without_end(number)) for number in range(10)]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            while room.num_taken < CAPACITY:
                await asyncio.sleep(0.001)
        large = scene.ask(prompt=scene.prompt(*range(1, CAPACITY + 1)))
        assert token_ids(await asyncio.wait_for(large, 3)) == [10, 11, 12]
    finally:
        stop.set()
        await asyncio.gather(*asking)


async def test_who_waits_for_one_worker_holds_up_nobody(scene: Scene) -> None:
    room = Room(scene)
    room.full = True
    pinned = asyncio.create_task(scene.ask(route=RouteHint(decode_worker="decode-a")))
    await asyncio.sleep(0.1)
    scene.other_decode.num_refusals = 0
    scene.prefill.on_submit = hand_over_to(scene.other_decode, 11, 12)
    assert token_ids(await scene.ask()) == [10, 11, 12]
    assert not pinned.done()
    room.full = False
    scene.prefill.on_submit = hand_over_to(scene.decode, 11, 12)
    assert token_ids(await pinned) == [10, 11, 12]
