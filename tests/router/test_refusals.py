"""Workers that don't fit: the router says so in its status, and the worker is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from common.config import Role
from protos import admin_pb2
from router.api.admin import RouterAdminServicer
from router.decision_log import DecisionLog
from router.fleet import Fleet
from router.planning.roster import Roster
from tests.support.scripted_worker import ScriptedWorker, scripted_worker

TIMEOUT_S = 10.0


@pytest.fixture
async def remembering() -> AsyncIterator[Callable[[float], Fleet]]:
    """remembering(seconds) -> a fleet that remembers workers that broke for so long."""
    fleets: list[Fleet] = []

    def make(recall_s: float) -> Fleet:
        fleets.append(Fleet("router", "model", Roster(), recall_s=recall_s))
        return fleets[-1]

    yield make
    for fleet in fleets:
        await fleet.close()


@pytest.fixture
def fleet(remembering: Callable[[float], Fleet]) -> Fleet:
    return remembering(30.0)


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


def usable(fleet: Fleet) -> list[str]:
    return [handle.info.worker_id for handle in fleet.usable(Role.DECODE)]


async def status_of(fleet: Fleet) -> admin_pb2.StatusResponse:
    context: Any = None
    return await RouterAdminServicer(fleet, DecisionLog(), (), admin_pb2.RouterStatus).Status(
        admin_pb2.StatusRequest(), context
    )


def members(*workers: ScriptedWorker) -> dict[str, bytes]:
    return {worker.worker_id: worker.registration().SerializeToString() for worker in workers}


async def test_a_worker_of_another_block_size_is_in_the_status_and_told_once(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one, scripted_worker("two", Role.DECODE) as two:
        two.block_size = 32
        await fleet.set_members(members(one))
        await wait_for(lambda: usable(fleet) == ["one"])
        await fleet.set_members(members(one, two))
        await fleet.set_members(members(one, two))
        await wait_for(lambda: bool(two.refusals))
        status = await status_of(fleet)
        assert [worker.worker_id for worker in status.workers] == ["one"]
        (refused,) = status.refused_workers
        assert (refused.worker_id, refused.address) == ("two", two.address)
        assert "has block_size 32, but worker one of the fleet has 16" in refused.reason
        assert "with the same block_size" in refused.reason
        assert [(told.router_id, told.reason) for told in two.refusals] == [("router", refused.reason)]
        assert one.refusals == []


async def test_a_worker_of_several_ranks_is_refused_by_name(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        one.num_ranks = 2
        await fleet.set_members(members(one))
        (refused,) = (await status_of(fleet)).refused_workers
        assert refused.reason == "worker one has 2 ranks: KV moves between workers of one rank only"
        assert not usable(fleet)


async def test_a_worker_of_another_model_gets_no_work(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        one.model = "other"
        fleet.add_static((one.address,))
        await wait_for(lambda: bool(one.refusals))
        assert fleet.workers() == []
        assert "serves model 'other', this router 'model'" in one.refusals[0].reason


async def test_a_refused_worker_that_is_started_anew_is_told_again_or_taken(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one, scripted_worker("two", Role.DECODE) as two:
        await fleet.set_members(members(one))
        await wait_for(lambda: usable(fleet) == ["one"])
        two.block_size = 32
        for incarnation in (1, 2):
            two.incarnation = incarnation
            await fleet.set_members(members(one, two))
            await wait_for(lambda number=incarnation: len(two.refusals) == number)  # type: ignore[misc]
        two.block_size, two.incarnation = 16, 3
        await fleet.set_members(members(one, two))
        await wait_for(lambda: sorted(usable(fleet)) == ["one", "two"])
        assert fleet.refused() == []


async def test_a_refused_worker_that_left_is_forgotten(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        one.model = "other"
        await fleet.set_members({**members(one), "broken": b"\xff"})
        assert [refused.worker_id for refused in fleet.refused()] == ["one", "broken"]
        await fleet.set_members({})
        assert fleet.refused() == []


async def test_a_worker_that_came_back_as_another_is_refused_at_its_stream(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one, scripted_worker("two", Role.DECODE) as two:
        await fleet.set_members(members(one, two))
        await wait_for(lambda: sorted(usable(fleet)) == ["one", "two"])
        two.block_size, two.incarnation = 32, 2
        two.drop_stream()
        await wait_for(lambda: bool(two.refusals))
        assert usable(fleet) == ["one"]
        status = await status_of(fleet)
        assert [worker.worker_id for worker in status.workers] == ["one"]
        assert [worker.worker_id for worker in status.refused_workers] == ["two"]


async def test_who_was_refused_does_not_step_in_when_a_stream_breaks(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one, scripted_worker("two", Role.DECODE) as two:
        two.block_size = 32
        await fleet.set_members(members(one))
        await wait_for(lambda: usable(fleet) == ["one"])
        one.drop_stream()
        await wait_for(lambda: usable(fleet) == [])
        await fleet.set_members(members(one, two))
        assert [refused.worker_id for refused in fleet.refused()] == ["two"]
        await wait_for(lambda: usable(fleet) == ["one"])
        one.drain()
        await wait_for(lambda: usable(fleet) == [])
        one.drop_stream()
        await wait_for(lambda: not any(handle.attachment.connected for handle in fleet.workers()))
        await fleet.set_members(members(two))
        assert fleet.refused() == []


async def test_a_whole_fleet_may_come_back_with_another_block_size(remembering: Callable[[float], Fleet]) -> None:
    """Workers that are down for long speak for no one."""
    fleet = remembering(0.5)
    keeping = asyncio.create_task(fleet.keep_members())
    async with scripted_worker("one", Role.DECODE) as one, scripted_worker("two", Role.DECODE) as two:
        await fleet.set_members(members(one, two))
        await wait_for(lambda: sorted(usable(fleet)) == ["one", "two"])
        ports = [int(worker.address.rpartition(":")[2]) for worker in (one, two)]
    async with (
        scripted_worker("one", Role.DECODE, incarnation=2, port=ports[0]) as one,
        scripted_worker("two", Role.DECODE, incarnation=2, port=ports[1]) as two,
    ):
        one.block_size = two.block_size = 32
        await fleet.set_members(members(one, two))
        # those that are gone count until their broken connection was noticed
        await wait_for(lambda: sorted(usable(fleet)) == ["one", "two"] and fleet.reference().block_size == 32)
    keeping.cancel()
