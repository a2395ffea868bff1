"""What a lost worker, or one that must not be used, costs a request."""

from __future__ import annotations

import asyncio

from protos import worker_pb2
from tests.support.conducting import Scene, token_ids
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
