"""A worker that does both beside workers of one role: it takes whole requests or decodes, and never hands over."""

from __future__ import annotations

import asyncio

import pytest

from common.config import Role
from common.errors import InvalidRequestError
from protos import worker_pb2
from router.generation import RouteHint
from tests.support.conducting import TIMEOUT_S, Scene, token_ids
from tests.support.scripted_worker import ScriptedWorker, scripted_worker


async def test_a_worker_that_does_both_is_no_prefill_worker(scene: Scene) -> None:
    def whole(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        worker.tokens(submit.leg, 0, 10, 11, 12, finish=True)

    async with scripted_worker("both", Role.BOTH) as both:
        both.on_submit = whole
        fleet = scene.core._fleet
        fleet.add_static((both.address,))
        async with asyncio.timeout(TIMEOUT_S):
            while (handle := fleet.find("both")) is None or not handle.usable:
                await asyncio.sleep(0.01)
        with pytest.raises(InvalidRequestError, match="prefill_worker"):
            await scene.ask(route=RouteHint(prefill_worker="both", decode_worker="both"))

        def refuse_once(prefill: ScriptedWorker, submit: worker_pb2.Submit) -> None:
            prefill.end(submit.leg, worker_pb2.LEG_END_REASON_REJECTED, status="RESOURCE_EXHAUSTED", message="full")
            prefill.on_submit = lambda worker, again: worker.tokens(again.leg, 0, 10, finish=True)

        scene.prefill.on_submit = refuse_once
        assert token_ids(await scene.ask(route=RouteHint(decode_worker="both"))) == [10]
        assert both.submits == []
