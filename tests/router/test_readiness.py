"""Ready after a real answer, not ready when nobody decodes any more; each change is announced."""

from __future__ import annotations

import asyncio

from protos import worker_pb2
from router.readiness import Readiness
from tests.support.conducting import TIMEOUT_S, Scene
from tests.support.scripted_worker import ScriptedWorker


async def test_each_change_is_announced_once(scene: Scene) -> None:
    def answer(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        worker.tokens(submit.leg, 0, 10, 11, finish=True)

    scene.prefill.on_submit = answer
    announced: asyncio.Queue[bool] = asyncio.Queue()
    readiness = Readiness(scene.core, scene.core._fleet, min_workers=3, announce=announced.put)
    running = asyncio.create_task(readiness.run())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert await announced.get()
            assert readiness.why_not() is None
            scene.decode.drain()
            scene.other_decode.drain()
            assert not await announced.get()
            assert readiness.why_not() == "no worker that decodes is up"
    finally:
        running.cancel()
    assert announced.empty()
