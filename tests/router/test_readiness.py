"""Ready while real answers come: asked of one pair of workers after the other, and each change is announced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count

from common.config import Role
from protos import admin_pb2, worker_pb2
from router.api.admin import RouterAdminServicer
from router.decision_log import DecisionLog
from router.readiness import PROBE_PRIORITY, PROBE_TOKENS, Readiness
from slipstream.codec import decode_status
from tests.support.conducting import GATE, TIMEOUT_S, Scene
from tests.support.scripted_worker import ScriptedWorker

INTERVAL_S = 0.05
DEADLINE_S = 0.4


def answer(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
    worker.tokens(submit.leg, 0, 10, 11, finish=True)


def be_silent(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None: ...


@asynccontextmanager
async def watched(
    scene: Scene, announced: asyncio.Queue[bool] | None = None, *, interval_s: float = INTERVAL_S
) -> AsyncIterator[Readiness]:
    announced = asyncio.Queue() if announced is None else announced
    readiness = Readiness(
        scene.core,
        scene.core._fleet,
        min_workers=3,
        announce=announced.put,
        probe_interval_s=interval_s,
        probe_deadline_s=DEADLINE_S,
    )
    running = asyncio.create_task(readiness.run())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield readiness
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def wait_for(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def states(scene: Scene) -> dict[str, str]:
    """Of each worker, as `slipstream status` tells them."""
    servicer = RouterAdminServicer(scene.core._fleet, DecisionLog(), (), admin_pb2.RouterStatus)
    response = await servicer.Status(admin_pb2.StatusRequest(), None)  # type: ignore[arg-type]
    return {worker.worker_id: worker.state for worker in decode_status(response).workers}


def candidates_of(scene: Scene, role: Role) -> tuple[str, ...]:
    """Whom a request that comes now may go to."""
    side = scene.core._fleet._roster.side(role)
    chosen = side.select(depths={}, homes=(), exclude=frozenset(), sequence=0, max_candidates=16, draw=random.Random(0))
    return tuple(account.info.worker_id for account in chosen)


async def test_each_change_is_announced_once(scene: Scene) -> None:
    scene.prefill.on_submit = answer
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced) as readiness:
        assert await announced.get()
        assert readiness.why_not() is None
        scene.decode.drain()
        scene.other_decode.drain()
        assert not await announced.get()
        assert readiness.why_not() == "no worker that decodes is up"
    assert announced.empty()


async def test_a_probe_goes_through_prefill_and_decode_of_each_pair_before_all_that_waits(scene: Scene) -> None:
    scene.prefill.on_submit = answer
    async with watched(scene):
        await wait_for(lambda: bool(scene.decode.reserves and scene.other_decode.reserves))
    for submit in scene.prefill.submits:
        assert submit.HasField("push_target")
        assert submit.leg.canary
        assert submit.leg.sampling.max_tokens == PROBE_TOKENS == 2
        assert submit.leg.priority == PROBE_PRIORITY
    assert scene.decode.submits == scene.other_decode.submits == []


async def test_a_fleet_whose_answers_stop_is_not_ready_until_they_come_again(scene: Scene) -> None:
    scene.prefill.on_submit = answer
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced) as readiness:
        assert await announced.get()
        assert set((await states(scene)).values()) == {"ready"}
        scene.prefill.on_submit = be_silent
        assert not await announced.get()
        assert "the probe failed" in (readiness.why_not() or "")
        assert (await states(scene))["prefill"] == "not_ready"
        scene.prefill.on_submit = answer
        assert await announced.get()
        await wait_for(lambda: all(handle.answers for handle in scene.core._fleet.workers()))
    assert announced.empty()


async def test_one_worker_that_hangs_is_told_apart_and_the_others_serve(scene: Scene) -> None:
    def answer_through_b(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        if submit.push_target.ticket.ticket_id.startswith("decode-b"):
            answer(worker, submit)

    scene.prefill.on_submit = answer_through_b
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced):
        assert await announced.get()
        handle = scene.core._fleet.find("decode-a")
        assert handle is not None
        await wait_for(lambda: not handle.answers and bool(scene.prefill.submits))
        assert (await states(scene))["decode-a"] == "not_ready"
        assert (await states(scene))["decode-b"] == "ready"
        assert candidates_of(scene, Role.DECODE) == ("decode-b",)
        await asyncio.sleep(4 * DEADLINE_S)
    assert announced.empty(), "it was ready all the time"


async def test_a_router_that_probes_no_more_holds_nothing_against_anyone(scene: Scene) -> None:
    silent = count()

    def answer_the_second(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        if next(silent):
            answer(worker, submit)

    scene.prefill.on_submit = answer_the_second
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced, interval_s=0.0):
        assert await announced.get()
        assert len(scene.prefill.submits) == 2
        assert set((await states(scene)).values()) == {"ready"}


async def test_a_fleet_that_is_busy_with_others_stays_ready(scene: Scene) -> None:
    scene.prefill.on_submit = answer
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced) as readiness:
        assert await announced.get()

        def work(numbers: Iterator[int]) -> None:
            for worker in (scene.prefill, scene.decode, scene.other_decode):
                worker.report_load(num_generated_tokens=10 * next(numbers))

        scene.prefill.on_submit = be_silent
        numbers = count(1)
        for _ in range(12):
            work(numbers)
            await asyncio.sleep(DEADLINE_S / 4)
            assert readiness.ready
    assert announced.empty()


async def test_a_worker_that_is_lost_in_a_probe_is_not_held_against_its_partner(scene: Scene) -> None:
    lost = asyncio.Event()

    def lose_decode(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        for decode in (scene.decode, scene.other_decode):
            decode.takes_streams = False
            decode.drop_stream()
        lost.set()

    scene.prefill.on_submit = answer
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced) as readiness:
        assert await announced.get()
        scene.prefill.on_submit = lose_decode
        await lost.wait()
        assert not await announced.get()
        assert not readiness.ready
        prefill = scene.core._fleet.find("prefill")
        assert prefill is not None and prefill.answers


async def test_a_router_that_is_full_holds_it_against_no_worker(scene: Scene) -> None:
    def answer_probes(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        if submit.leg.canary:
            answer(worker, submit)

    scene.prefill.on_submit = answer_probes
    announced: asyncio.Queue[bool] = asyncio.Queue()
    async with watched(scene, announced):
        assert await announced.get()
        waiting = [asyncio.create_task(scene.ask()) for _ in range(GATE)]
        await wait_for(lambda: len(scene.prefill.submits) >= GATE)
        num_probes = sum(submit.leg.canary for submit in scene.prefill.submits)
        await asyncio.sleep(8 * INTERVAL_S)
        assert sum(submit.leg.canary for submit in scene.prefill.submits) <= num_probes + 1, "none gets in"
        assert set((await states(scene)).values()) == {"ready"}
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert announced.empty()


async def test_removed_not_ready_and_dead_are_told_apart(scene: Scene) -> None:
    scene.prefill.on_submit = be_silent
    async with watched(scene):
        fleet = scene.core._fleet
        await wait_for(lambda: not all(handle.answers for handle in fleet.workers()))
        scene.decode.drain()
        await wait_for(lambda: any(handle.info.draining for handle in fleet.workers()))
        assert (await states(scene))["decode-a"] == "draining"
        for worker in (scene.decode, scene.other_decode):
            worker.takes_streams = False
            worker.drop_stream()
        await wait_for(lambda: sum(handle.attachment.connected for handle in fleet.workers()) == 1)
        told = await states(scene)
        assert (told["prefill"], told["decode-a"], told["decode-b"]) == ("not_ready", "removed", "dead")
