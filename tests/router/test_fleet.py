"""Workers that come, go, and take another's place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from common.config import Role
from common.errors import UnavailableError
from common.net.peer_role import PeerRole
from common.net.tls_folder import load_identity
from common.request import LegKey, RequestId, WorkerId
from protos import worker_pb2
from router.fleet import Fleet
from router.inbox import Inbox, Message, WorkerLost
from router.planning.roster import Roster
from tests.support.certificates import make_fleet
from tests.support.scripted_worker import scripted_worker

TIMEOUT_S = 10.0


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    fleet = Fleet("router", "model", Roster())
    yield fleet
    await fleet.close()


async def wait_for(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


def usable(fleet: Fleet) -> dict[str, tuple[str, int]]:
    return {
        handle.info.worker_id: (handle.info.address, handle.info.incarnation) for handle in fleet.usable(Role.DECODE)
    }


async def test_another_worker_takes_over_an_address_that_was_given(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        fleet.add_static((one.address,))
        await wait_for(lambda: "one" in usable(fleet))
    port = int(one.address.rpartition(":")[2])
    async with scripted_worker("two", Role.DECODE, port=port) as two:
        await wait_for(lambda: list(usable(fleet)) == ["two"])
        assert [handle.info.worker_id for handle in fleet.workers()] == ["two"]
        assert fleet.find("two") is not None
        assert two.num_attached == 1


async def test_a_dead_worker_s_handle_leaves_the_worker_at_its_address_alone(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        members = {"one": one.registration().SerializeToString()}
        await fleet.set_members(members)
        await wait_for(lambda: "one" in usable(fleet))
    port = int(one.address.rpartition(":")[2])
    async with scripted_worker("two", Role.DECODE, port=port) as two:
        # The lease of the first has not run out.
        await fleet.set_members({**members, "two": two.registration().SerializeToString()})
        await wait_for(lambda: "two" in usable(fleet))
        await asyncio.sleep(1.0)
        assert list(usable(fleet)) == ["two"]
        assert two.num_attached == 1


async def test_a_worker_that_came_back_elsewhere_is_found_once_its_old_stream_breaks(fleet: Fleet) -> None:
    async with AsyncExitStack() as stack:
        new = await stack.enter_async_context(scripted_worker("one", Role.DECODE, incarnation=2))
        keeping = asyncio.create_task(fleet.keep_members())
        stack.callback(keeping.cancel)
        async with scripted_worker("one", Role.DECODE, incarnation=1) as old:
            await fleet.set_members({"one": old.registration().SerializeToString()})
            await wait_for(lambda: "one" in usable(fleet))
            await fleet.set_members({"one": new.registration().SerializeToString()})
            assert usable(fleet) == {"one": (old.address, 1)}
            assert [(one.address, one.reason) for one in fleet.refused()] == [
                (new.address, f"worker one runs already, at {old.address}: each needs an id")
            ]
        await wait_for(lambda: usable(fleet) == {"one": (new.address, 2)})
        assert fleet.refused() == []


async def test_a_worker_that_is_being_replaced_is_no_fault(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE, incarnation=1) as old:
        await fleet.set_members({"one": old.registration().SerializeToString()})
        await wait_for(lambda: "one" in usable(fleet))
        old.drain()
        await wait_for(lambda: not usable(fleet))
        async with scripted_worker("one", Role.DECODE, incarnation=2) as new:
            await fleet.set_members({"one": new.registration().SerializeToString()})
            assert fleet.refused() == []


async def test_a_worker_that_was_named_and_gives_no_answer_is_shown(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        address, port = one.address, int(one.address.rpartition(":")[2])
    fleet.add_static((address,))
    await wait_for(lambda: bool(caplog.records))
    assert caplog.messages == [f"worker at {address}: gives no answer; it is asked again and again"]
    assert [(one.address, one.reason) for one in fleet.refused()] == [
        (address, f"the worker at {address} gives no answer")
    ]
    with pytest.raises(UnavailableError, match=f"do not answer: {address}"):
        fleet.reference()
    async with scripted_worker("one", Role.DECODE, port=port):
        await wait_for(lambda: "one" in usable(fleet))
        assert fleet.refused() == []


async def test_a_worker_that_left_is_removed_once_its_stream_breaks(fleet: Fleet) -> None:
    keeping = asyncio.create_task(fleet.keep_members())
    async with scripted_worker("one", Role.DECODE) as one:
        await fleet.set_members({"one": one.registration().SerializeToString()})
        await wait_for(lambda: "one" in usable(fleet))
        await fleet.set_members({})
        assert "one" in usable(fleet)
    await wait_for(lambda: not fleet.workers())
    keeping.cancel()


@pytest.mark.parametrize("gracefully", [False, True])
async def test_only_a_stream_that_breaks_unannounced_is_a_warning(
    fleet: Fleet, gracefully: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        await fleet.set_members({"one": one.registration().SerializeToString()})
        await wait_for(lambda: "one" in usable(fleet))
        if gracefully:
            one.drain()
            await wait_for(lambda: not usable(fleet))
        with caplog.at_level(logging.INFO, logger="router.attachment"):
            one.drop_stream()
            await wait_for(lambda: bool(caplog.records))
    told = ("INFO", "worker one left") if gracefully else ("WARNING", "lost the stream to worker one")
    assert (caplog.records[0].levelname, caplog.records[0].getMessage()) == told


async def test_a_message_that_can_t_be_read_costs_one_stream(fleet: Fleet) -> None:
    """Of a worker of another version, say."""
    async with scripted_worker("one", Role.DECODE) as one:
        await fleet.set_members({"one": one.registration().SerializeToString()})
        await wait_for(lambda: "one" in usable(fleet))
        inbox = Inbox(LegKey(RequestId("r"), 1))
        (handle,) = fleet.workers()
        handle.attachment.open(inbox)
        unknown: Any = 99
        output = worker_pb2.ChoiceOutput(request_id="r", attempt=1, finish_reason=unknown)
        one._send(worker_pb2.StepOutput(outputs=[output]))
        told: list[Message] = []
        async with asyncio.timeout(TIMEOUT_S):
            await inbox.follow(told.append, until=lambda: bool(told))
        assert told == [WorkerLost(worker_id=WorkerId("one"))]
        await wait_for(lambda: "one" in usable(fleet))
        assert one.num_attached == 2


async def test_who_was_a_member_is_remembered_until_it_is_one_again(fleet: Fleet) -> None:
    async with scripted_worker("one", Role.DECODE) as one:
        members = {"one": one.registration().SerializeToString()}
        await fleet.set_members(members)
        await wait_for(lambda: "one" in usable(fleet))
        one.drain()
        await wait_for(lambda: not usable(fleet))
        one.takes_streams = False
        one.drop_stream()
        await wait_for(lambda: not fleet.workers()[0].attachment.connected)
        assert fleet.departed() == []
        await fleet.set_members({})
        assert [(gone.info.worker_id, gone.removed) for gone in fleet.departed()] == [("one", True)]
        one.draining, one.takes_streams = False, True
        await fleet.set_members(members)
        assert fleet.departed() == []
        await wait_for(lambda: "one" in usable(fleet))
        one.takes_streams = False
        one.drop_stream()
        await wait_for(lambda: not fleet.workers()[0].attachment.connected)
        await fleet.set_members({})
        assert [gone.removed for gone in fleet.departed()] == [False]


async def test_workers_without_tls_get_no_work_and_their_operator_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls = load_identity(str(make_fleet(tmp_path)), PeerRole.ROUTER)
    fleet = Fleet("router", "model", Roster(), tls=tls)
    try:
        async with scripted_worker("plain", Role.DECODE) as plain, scripted_worker("named", Role.DECODE) as named:
            fleet.add_static((named.address,))
            await fleet.set_members({"plain": plain.registration().SerializeToString()})
            await wait_for(lambda: caplog.text.count("no TLS is spoken there") >= 2)
            assert not usable(fleet)
            assert not plain.num_attached and not named.num_attached
    finally:
        await fleet.close()
    told = [record.getMessage() for record in caplog.records if "no TLS" in record.getMessage()]
    assert len(told) == len(set(told)) == 2
    assert any(plain.address in line for line in told) and any(named.address in line for line in told)
