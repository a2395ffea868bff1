"""What a lost worker, or one that must not be used, costs a request."""

from __future__ import annotations

import asyncio
import dataclasses
import time

import pytest

from common.errors import DeadlineExceededError, InvalidRequestError, UnavailableError
from common.request import WorkerId
from protos import worker_pb2
from router.generation import RouteHint
from router.leg_attempt import CONTROL_TIMEOUT_S
from tests.support.conducting import HANDED_OVER, RETURN_S, TIMEOUT_S, Scene, hand_over_to, token_ids
from tests.support.scripted_worker import ScriptedWorker


async def test_requests_of_one_id_are_two_requests(scene: Scene) -> None:
    def later(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        asyncio.get_running_loop().call_later(
            0.2, lambda: prefill.tokens(submit.leg, 0, submit.leg.prompt_token_ids[0], finish=True)
        )

    scene.prefill.on_submit = later
    prompts = [scene.prompt(20), scene.prompt(21)]
    answers = await asyncio.gather(*(scene.ask(request_id="same", prompt=prompt) for prompt in prompts))
    assert [token_ids(answer) for answer in answers] == [[20], [21]]


async def test_a_retry_avoids_the_worker_that_was_lost(scene: Scene) -> None:
    """Such as one that prefill workers can't reach: idle, it looks like the best choice each time."""

    def script(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        if submit.push_target.ticket.ticket_id.startswith("decode-a"):
            failed = worker_pb2.LEG_END_REASON_TRANSFER_FAILED
            asyncio.get_running_loop().call_later(0.2, prefill.end, submit.leg, failed)
        elif submit.HasField("push_target"):
            hand_over_to(scene.other_decode, 11, 12)(prefill, submit)
        else:
            prefill.tokens(submit.leg, 0, 10, finish=True)

    scene.prefill.on_submit = script
    # A request in between makes it decode-a's turn again.
    events, _ = await asyncio.gather(scene.ask(), scene.ask(max_tokens=1))
    assert token_ids(events) == [10, 11, 12]
    assert events[-1].route is not None
    assert (events[-1].route.decode_worker, events[-1].route.attempts) == ("decode-b", 2)


async def test_a_worker_that_hangs_in_reserve_is_left_when_it_is_lost(scene: Scene) -> None:
    scene.decode.reserve_hangs = True
    scene.other_decode.num_refusals = 1_000_000
    scene.prefill.on_submit = hand_over_to(scene.other_decode, 11, 12)
    asking = asyncio.create_task(scene.ask())
    while not scene.decode.num_hanging:
        await asyncio.sleep(0.01)
    scene.other_decode.num_refusals = 0
    scene.decode.takes_streams = False
    lost_s = time.monotonic()
    scene.decode.drop_stream()
    assert token_ids(await asking) == [10, 11, 12]
    assert time.monotonic() - lost_s < CONTROL_TIMEOUT_S / 2


@pytest.mark.parametrize(
    ("route", "why"),
    [
        (RouteHint(exclude=("prefill",)), "leaves no prefill worker"),
        (RouteHint(exclude=("decode-a", "decode-b")), "leaves no decode worker"),
        (RouteHint(prefill_worker="prefill", exclude=("prefill",)), "leaves no prefill worker"),
        (RouteHint(decode_worker="decode-a", exclude=("decode-a",)), "route.decode_worker asks for"),
    ],
)
async def test_who_excludes_all_workers_of_a_role_is_told(scene: Scene, route: RouteHint, why: str) -> None:
    with pytest.raises(InvalidRequestError, match=why) as raised:
        await scene.ask(route=route)
    assert raised.value.field == "route.exclude"


async def test_workers_that_are_down_are_not_the_caller_s_fault(scene: Scene) -> None:
    fleet = scene.core._fleet
    for name in ("decode-a", "decode-b"):
        handle = fleet.find(name)
        assert handle is not None
        handle.info = dataclasses.replace(handle.info, draining=True)
    with pytest.raises(UnavailableError, match=r"draining: decode-a, decode-b. .*`slipstream drain decode-a --undo`"):
        await scene.ask(route=RouteHint(exclude=("decode-a",)))


@pytest.mark.parametrize("begun", [False, True])
async def test_a_side_that_was_gone_for_a_moment_is_waited_for(scene: Scene, begun: bool) -> None:
    """Such as when this router, or every worker of a side, stood still for longer than a lease."""
    decoders = (scene.decode, scene.other_decode)

    def lose_all(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        if begun:
            prefill.tokens(submit.leg, 0, 10)
        prefill.end(submit.leg, HANDED_OVER)
        for worker in decoders:
            worker.takes_streams = False
            worker.drop_stream()
        prefill.on_submit = lambda prefill, submit: None
        asyncio.get_running_loop().call_later(RETURN_S / 3, come_back)

    def come_back() -> None:
        scene.prefill.on_submit = go_on
        for worker in decoders:
            worker.takes_streams = True

    def go_on(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, int(begun), *(11, 12) if begun else (10, 11, 12), finish=True)

    scene.prefill.on_submit = lose_all
    assert token_ids(await scene.ask()) == [10, 11, 12]


async def test_a_side_that_stays_away_is_not_waited_for_for_long(scene: Scene) -> None:
    def lose_all(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, 10)
        prefill.end(submit.leg, HANDED_OVER)
        for worker in (scene.decode, scene.other_decode):
            worker.takes_streams = False
            worker.drop_stream()

    scene.prefill.on_submit = lose_all
    with pytest.raises(UnavailableError, match="no decode worker is ready"):
        await scene.ask()


async def test_reserve_without_an_answer_is_taken_back(scene: Scene) -> None:
    """The answer may have been on its way: then the worker holds a reservation that nobody knows of."""
    scene.decode.reserve_error = DeadlineExceededError("too late")
    scene.prefill.on_submit = hand_over_to(scene.other_decode, 11, 12)
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    async with asyncio.timeout(TIMEOUT_S):
        while not scene.decode.cancels:
            await asyncio.sleep(0.01)


async def test_choices_that_parted_lose_a_worker_each_for_itself(scene: Scene) -> None:
    """One death is one loss, however many choices were there."""
    again: list[worker_pb2.Leg] = []

    def first(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        for choice in range(4):
            prefill.tokens(submit.leg, 0, 10, choice=choice)
        prefill.end(submit.leg, HANDED_OVER)
        scene.decode.end(submit.leg, worker_pb2.LEG_END_REASON_PREEMPTED)
        prefill.on_submit = lose_all

    def lose_all(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        again.append(submit.leg)
        if len(again) == 4:
            prefill.drop_stream()

    def local(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        worker.tokens(submit.leg, 1, 11, 12, choice=submit.leg.choice_indices[0], finish=True)

    scene.prefill.on_submit = first
    scene.decode.on_submit = scene.other_decode.on_submit = local
    events = await scene.ask(n=4)
    assert [token_ids(events, choice) for choice in range(4)] == [[10, 11, 12]] * 4


async def test_a_pinned_worker_that_leaves_midway_is_not_the_caller_s_fault(scene: Scene) -> None:
    def leave(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        scene.core._fleet._roster.remove(WorkerId("prefill"))
        prefill.drop_stream()

    scene.prefill.on_submit = leave
    with pytest.raises(UnavailableError, match="a worker that the request asks for has left"):
        await scene.ask(route=RouteHint(prefill_worker="prefill"))
