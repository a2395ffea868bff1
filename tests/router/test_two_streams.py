"""An attempt's messages come over two streams, in any order between the two."""

from __future__ import annotations

import asyncio

from protos import worker_pb2
from tests.support.conducting import HANDED_OVER, TIMEOUT_S, Scene, hand_over_to, token_ids
from tests.support.scripted_worker import ScriptedWorker


async def test_decode_may_be_heard_before_prefill(scene: Scene) -> None:
    def script(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        scene.decode.tokens(submit.leg, 1, 11)
        scene.decode.tokens(submit.leg, 2, 12, finish=True)
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, prefill.tokens, submit.leg, 0, 10)
        loop.call_later(0.2, prefill.end, submit.leg, HANDED_OVER)

    scene.prefill.on_submit = script
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    assert events[-1].route is not None
    assert events[-1].route.attempts == 1


async def test_hand_back_may_be_heard_before_the_first_token(scene: Scene) -> None:
    def first(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        scene.decode.tokens(submit.leg, 1, 11)
        scene.decode.end(submit.leg, worker_pb2.LEG_END_REASON_PREEMPTED, choice_indices=[0])
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, prefill.tokens, submit.leg, 0, 10)
        loop.call_later(0.2, prefill.end, submit.leg, HANDED_OVER)
        prefill.on_submit = again

    def again(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        assert list(submit.leg.output_token_ids) == [10, 11]
        prefill.tokens(submit.leg, 2, 12, finish=True)

    scene.prefill.on_submit = first
    assert token_ids(await scene.ask()) == [10, 11, 12]


async def test_prefill_lost_with_the_first_token_unheard_is_a_retry(scene: Scene) -> None:
    def first(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        scene.decode.tokens(submit.leg, 1, 11)
        asyncio.get_running_loop().call_later(0.2, prefill.drop_stream)
        prefill.on_submit = hand_over_to(scene.decode, 11, 12)

    def local(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        worker.tokens(submit.leg, 0, 10, 11, 12, finish=True)

    scene.prefill.on_submit = first
    scene.decode.on_submit = scene.other_decode.on_submit = local
    events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
    assert events[-1].route is not None
    assert events[-1].route.attempts == 2


async def test_a_finished_answer_does_not_mind_a_failed_transfer(scene: Scene) -> None:
    """The commit arrived, and its answer was lost."""

    def script(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, 10)
        scene.decode.tokens(submit.leg, 1, 11, 12, finish=True)
        end = worker_pb2.LEG_END_REASON_TRANSFER_FAILED
        asyncio.get_running_loop().call_later(0.2, prefill.end, submit.leg, end)

    scene.prefill.on_submit = script
    async with asyncio.timeout(TIMEOUT_S):
        events = await scene.ask()
    assert token_ids(events) == [10, 11, 12]
