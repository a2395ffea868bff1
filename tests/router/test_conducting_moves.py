"""What a worker that drains keeps goes on elsewhere, whatever happens meanwhile."""

from __future__ import annotations

import asyncio

from common.errors import DeadlineExceededError
from common.net.protocol import MOVE_VERSION
from protos import worker_pb2
from tests.support.conducting import HANDED_OVER, TIMEOUT_S, Scene, token_ids
from tests.support.scripted_worker import ScriptedWorker


async def test_a_move_goes_to_a_worker_that_has_failed_when_there_is_no_other(scene: Scene) -> None:
    """Kept, a choice stands still: the one worker that may take it is not to be avoided for a fault of the past."""
    moves: list[worker_pb2.Move] = []

    def hand_over(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        prefill.tokens(submit.leg, 0, 10)
        prefill.end(submit.leg, HANDED_OVER)
        scene.decode.tokens(submit.leg, 1, 11)

    def keep(keep: worker_pb2.Keep) -> None:
        leg = worker_pb2.Leg(request_id=keep.request_id, attempt=keep.attempt)
        kept = worker_pb2.LEG_END_REASON_KEPT
        scene.decode.end(leg, kept, choice_indices=[keep.choice_index], num_output_tokens=3)

    def move(move: worker_pb2.Move) -> None:
        moves.append(move)
        leg = worker_pb2.Leg(request_id=move.request_id, attempt=move.attempt)
        scene.decode.end(leg, HANDED_OVER)
        scene.other_decode.tokens(leg, 3, 13, finish=True)

    scene.prefill.on_submit = hand_over
    scene.decode.on_keep, scene.decode.on_move = keep, move
    scene.decode.protocol_version = MOVE_VERSION
    scene.other_decode.reserve_error = DeadlineExceededError("no answer in time")
    asking = asyncio.create_task(scene.ask(max_tokens=4))
    async with asyncio.timeout(TIMEOUT_S):
        while not scene.core.answers or not all(len(one.choices[0].token_ids) == 2 for one in scene.core.answers):
            await asyncio.sleep(0.01)
    scene.decode.drain()
    scene.decode.tokens(scene.prefill.submits[0].leg, 2, 12)
    events = await asking
    assert token_ids(events) == [10, 11, 12, 13]
    assert len(moves) == 1
    assert events[-1].route is not None
    assert events[-1].route.decode_worker == "decode-b"
