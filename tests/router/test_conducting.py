"""The router's core over scripted workers: hand-over, refusals, losses, hand-backs, ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from common.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ModelNotFoundError,
    SlipstreamError,
    UnavailableError,
)
from common.request import FinishReason
from protos import worker_pb2
from router.generation import RouteHint, TokenPrompt, events_of
from router.waiting_room import REST_S
from tests.support.conducting import HANDED_OVER, TIMEOUT_S, Scene, hand_over_to, make_command, token_ids
from tests.support.scripted_worker import ScriptedWorker


async def test_hand_over(scene: Scene) -> None:
    scene.prefill.on_submit = hand_over_to(scene.decode, 11, 12)
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    last = events[-1]
    assert last.usage is not None
    assert last.usage.generated_tokens == 3
    assert last.route is not None
    assert (last.route.prefill_worker, last.route.decode_worker) == ("prefill", "decode-a")
    assert (last.route.transferred_bytes, last.route.attempts) == (4096, 1)
    await scene.background.close()
    assert scene.decode.aborts == []
    assert scene.decode.releases == []


async def test_leg_carries_seed_and_limits(scene: Scene) -> None:
    scene.prefill.on_submit = hand_over_to(scene.decode, 11, 12)
    await scene.ask()
    leg = scene.prefill.submits[0].leg
    assert leg.sampling.HasField("seed")
    assert list(leg.prompt_token_ids) == [1, 2, 3]
    assert scene.decode.reserves[0].leg == leg


async def test_refusal_goes_to_the_next_worker(scene: Scene) -> None:
    scene.decode.num_refusals = 1
    scene.prefill.on_submit = hand_over_to(scene.other_decode, 11, 12)
    events = await scene.ask()
    assert events[-1].route is not None
    assert events[-1].route.decode_worker == "decode-b"


async def test_waits_while_all_refuse(scene: Scene) -> None:
    scene.decode.num_refusals = scene.other_decode.num_refusals = 2

    def script(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        taker = scene.decode if scene.decode.reserves else scene.other_decode
        hand_over_to(taker, 11, 12)(prefill, submit)

    scene.prefill.on_submit = script
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    assert events[-1].route is not None
    assert events[-1].route.attempts == 1


async def test_who_was_refused_rests(scene: Scene) -> None:
    """However often a full fleet tells of its load."""
    scene.decode.num_refusals = scene.other_decode.num_refusals = 1000

    async def chatter() -> None:
        while True:
            scene.decode.report_load()
            await asyncio.sleep(0.001)

    chattering = asyncio.create_task(chatter())
    with pytest.raises(DeadlineExceededError):
        await scene.ask(deadline_s=0.5)
    chattering.cancel()
    assert 1000 - scene.decode.num_refusals <= 0.5 / REST_S + 1


async def test_prefill_refusal_waits_too(scene: Scene) -> None:
    def refuse_once(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.end(submit.leg, worker_pb2.LEG_END_REASON_REJECTED, status="RESOURCE_EXHAUSTED", message="full")
        prefill.on_submit = lambda worker, again: hand_over_to(
            scene.decode
            if scene.decode.reserves[-1:] and scene.decode.reserves[-1].leg == again.leg
            else scene.other_decode,
            11,
            12,
        )(worker, again)

    scene.prefill.on_submit = refuse_once
    assert token_ids(await scene.ask()) == [10, 11, 12]
    await scene.background.close()
    assert len(scene.decode.aborts + scene.other_decode.aborts) == 1


async def test_first_token_that_ends_the_request_releases_the_ticket(scene: Scene) -> None:
    scene.prefill.on_submit = lambda prefill, submit: prefill.tokens(submit.leg, 0, 10, finish=True)
    events = await scene.ask()
    assert token_ids(events) == [10]
    await scene.background.close()
    assert scene.decode.releases == ["decode-a-1"]
    assert scene.decode.aborts == []


async def test_one_token_takes_no_reservation(scene: Scene) -> None:
    scene.prefill.on_submit = lambda prefill, submit: prefill.tokens(submit.leg, 0, 10, finish=True)
    assert token_ids(await scene.ask(max_tokens=1)) == [10]
    assert scene.decode.reserves == scene.other_decode.reserves == []
    assert not scene.prefill.submits[0].HasField("push_target")


async def test_prefill_lost_before_the_first_token_is_a_retry(scene: Scene) -> None:
    def lose(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.drop_stream()

    scene.prefill.on_submit = lose

    def local(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        worker.tokens(submit.leg, 0, 10, 11, 12, finish=True)

    scene.decode.on_submit = scene.other_decode.on_submit = local
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    assert events[-1].route is not None
    assert events[-1].route.attempts == 2
    await scene.background.close()
    assert scene.decode.aborts == ["decode-a-1"]


async def test_decode_lost_in_mid_stream_goes_on_with_the_tokens_so_far(scene: Scene) -> None:
    def first(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, 10)
        prefill.end(submit.leg, HANDED_OVER)
        scene.decode.tokens(submit.leg, 1, 11)
        # The two workers' streams keep no common order: both tokens should be there by then.
        asyncio.get_running_loop().call_later(0.2, scene.decode.drop_stream)
        prefill.on_submit = second

    def second(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        assert list(submit.leg.output_token_ids) == [10, 11]
        prefill.tokens(submit.leg, 2, 12, finish=True)

    scene.prefill.on_submit = first
    assert token_ids(await scene.ask()) == [10, 11, 12]


async def test_hand_back_is_planned_again(scene: Scene) -> None:
    def first(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, 10)
        prefill.end(submit.leg, HANDED_OVER)
        scene.decode.tokens(submit.leg, 1, 11)
        scene.decode.end(submit.leg, worker_pb2.LEG_END_REASON_PREEMPTED, choice_indices=[0])
        prefill.on_submit = lambda worker, again: worker.tokens(again.leg, 2, 12, finish=True)

    scene.prefill.on_submit = first
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    assert events[-1].route is not None
    assert events[-1].route.preemptions == 1


async def test_choices_part_after_a_loss(scene: Scene) -> None:
    def first(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        for choice in (0, 1):
            prefill.tokens(submit.leg, 0, 10 + choice, choice=choice)
        prefill.end(submit.leg, worker_pb2.LEG_END_REASON_TRANSFER_FAILED, status="DATA_LOSS", message="checksum")
        prefill.on_submit = again

    def again(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        (choice,) = submit.leg.choice_indices
        assert list(submit.leg.output_token_ids) == [10 + choice]
        prefill.tokens(submit.leg, 1, 20 + choice, choice=choice, finish=True)

    scene.prefill.on_submit = first
    events = await scene.ask(n=2)
    assert token_ids(events, 0) == [10, 20]
    assert token_ids(events, 1) == [11, 21]


async def test_a_decode_worker_without_blocks_for_what_it_granted_is_no_loss(scene: Scene) -> None:
    ends = iter(range(5))  # more than attempts that may be lost

    def submit(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        if next(ends, None) is None:
            hand_over_to(scene.decode, 11, 12)(prefill, submit)
        else:
            prefill.end(
                submit.leg, worker_pb2.LEG_END_REASON_TRANSFER_FAILED, status="RESOURCE_EXHAUSTED", message="no blocks"
            )

    scene.other_decode.num_refusals = 1_000_000
    scene.prefill.on_submit = submit
    assert token_ids(await scene.ask()) == [10, 11, 12]
    await scene.background.close()
    assert len(scene.decode.aborts + scene.decode.releases) == 5


async def test_gives_up_after_max_attempts(scene: Scene) -> None:
    scene.prefill.on_submit = lambda prefill, submit: prefill.end(
        submit.leg, worker_pb2.LEG_END_REASON_TRANSFER_FAILED, status="DATA_LOSS", message="checksum"
    )
    with pytest.raises(UnavailableError, match="3 attempts"):
        await scene.ask()


async def test_failed_step_is_the_request_s_own_error(scene: Scene) -> None:
    scene.prefill.on_submit = lambda prefill, submit: prefill.end(
        submit.leg, worker_pb2.LEG_END_REASON_FAILED, status="INTERNAL", message="poison"
    )
    with pytest.raises(SlipstreamError, match="poison"):
        await scene.ask()
    assert len(scene.prefill.submits) == 1


async def test_cancel_reaches_both_workers(scene: Scene) -> None:
    scene.prefill.on_submit = lambda prefill, submit: prefill.tokens(submit.leg, 0, 10)
    events = events_of(scene.core, make_command())
    await anext(events)
    await events.aclose()
    await scene.background.close()
    async with asyncio.timeout(TIMEOUT_S):
        while not scene.prefill.cancels or not scene.decode.cancels:
            await asyncio.sleep(0.01)
    assert scene.decode.aborts == ["decode-a-1"]
    assert scene.core.gate.num_inside == 0


async def test_stop_string_cancels_decode(scene: Scene) -> None:
    text = scene.core._services.text.text
    x, y = text.encode("x", max_model_len=9)[0], text.encode("y", max_model_len=9)[0]

    def script(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, x)
        prefill.end(submit.leg, HANDED_OVER)
        scene.decode.tokens(submit.leg, 1, y, x)

    scene.prefill.on_submit = script
    events = await scene.ask(max_tokens=9, stop=("y",))
    assert token_ids(events) == [x, y]
    finishes = [delta.finish_reason for event in events for delta in event.choices if delta.finish_reason]
    assert finishes == [FinishReason.STOP]
    async with asyncio.timeout(TIMEOUT_S):
        while not scene.decode.cancels:
            await asyncio.sleep(0.01)


async def test_deadline(scene: Scene) -> None:
    with pytest.raises(DeadlineExceededError, match="deadline_ms: 100 ms have passed"):
        # As a gRPC deadline of 100 ms arrives.
        await scene.ask(deadline_s=0.09998)
    async with asyncio.timeout(TIMEOUT_S):
        while not scene.prefill.cancels:
            await asyncio.sleep(0.01)


async def test_a_deadline_beyond_all_time_is_none(scene: Scene) -> None:
    scene.prefill.on_submit = hand_over_to(scene.decode, 11, 12)
    assert token_ids(await scene.ask(deadline_s=1e300)) == [10, 11, 12]
    assert not scene.prefill.submits[0].leg.HasField("deadline_ms")


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"model": "other"}, ModelNotFoundError, "model"),
        ({"prompt": TokenPrompt(token_ids=())}, InvalidRequestError, "prompt"),
        ({"prompt": TokenPrompt(token_ids=(512,))}, InvalidRequestError, "prompt"),
        ({"prompt": TokenPrompt(token_ids=(-1,))}, InvalidRequestError, "prompt"),
        ({"prompt": TokenPrompt(token_ids=(1,) * 1024)}, InvalidRequestError, "prompt"),
        ({"max_tokens": 1022}, InvalidRequestError, "max_tokens"),
        ({"route": RouteHint(decode_worker="nobody")}, InvalidRequestError, "route.decode_worker"),
        ({"route": RouteHint(prefill_worker="decode-a")}, InvalidRequestError, "route.prefill_worker"),
    ],
)
async def test_bad_requests_name_the_field(
    scene: Scene, fields: dict[str, Any], error: type[SlipstreamError], field: str
) -> None:
    with pytest.raises(error) as raised:
        await scene.ask(**fields)
    assert raised.value.field == field  # type: ignore[attr-defined]


async def test_route_hint_is_followed(scene: Scene) -> None:
    scene.prefill.on_submit = hand_over_to(scene.other_decode, 11, 12)
    events = await scene.ask(route=RouteHint(decode_worker="decode-b"))
    assert events[-1].route is not None
    assert events[-1].route.decode_worker == "decode-b"


async def test_decode_only_hint_runs_on_one_worker(scene: Scene) -> None:
    scene.decode.on_submit = lambda worker, submit: worker.tokens(submit.leg, 0, 10, 11, 12, finish=True)
    events = await scene.ask(route=RouteHint(decode_only=True, exclude=("decode-b",)))
    assert token_ids(events) == [10, 11, 12]
    assert scene.prefill.submits == []
