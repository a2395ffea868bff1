"""A router's stream at a worker: what it owns ends with it, and only with it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from common.net.leg_codec import encode_leg
from common.net.protocol import OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION
from common.request import Leg, LegKey, RequestId, SamplingParams
from common.worker.attach_hub import MAX_QUEUED_STEPS, AttachHub
from common.worker.attach_session import AttachSession
from protos import transfer_pb2, worker_pb2

LEASE_S = 0.5


class Router:
    """The other end of a stream. `stuck`: it takes nothing, as over a half-open connection."""

    def __init__(self, *, stuck: bool = False, version: int = PROTOCOL_VERSION) -> None:
        hello = worker_pb2.AttachHello(router_id="router", protocol_version=version)
        self.outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self.outgoing.put_nowait(worker_pb2.AttachRequest(hello=hello))
        self.received: list[worker_pb2.AttachResponse] = []
        self._stuck = stuck

    async def read(self) -> Any:
        return await self.outgoing.get()

    async def write(self, message: worker_pb2.AttachResponse) -> None:
        if self._stuck:
            await asyncio.Event().wait()
        self.received.append(message)


class Taker:
    def __init__(self) -> None:
        self.gone: list[list[LegKey]] = []

    def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None: ...

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...]) -> None: ...

    def router_gone(self, router_id: str, orphans: list[LegKey]) -> None:
        self.gone.append(orphans)


def make_leg(request_id: str) -> Leg:
    return Leg(
        request_id=RequestId(request_id),
        attempt=1,
        choice_indices=(0,),
        prompt_token_ids=(1,),
        output_token_ids=(),
        sampling=SamplingParams(max_tokens=4, seed=1),
        priority=0,
        deadline_s=None,
        cache_salt=b"",
        canary=False,
    )


@pytest.fixture
def hub() -> AttachHub:
    return AttachHub()


@pytest.fixture
def taker() -> Taker:
    return Taker()


@pytest.fixture
def session(hub: AttachHub, taker: Taker) -> AttachSession:
    return AttachSession(hub, taker, worker_pb2.WorkerRegistration, lease_s=LEASE_S)


async def attach(session: AttachSession, router: Router) -> asyncio.Task[None]:
    task = asyncio.create_task(session.run(router))  # type: ignore[arg-type]
    await asyncio.sleep(0.01)
    return task


async def test_a_router_that_comes_again_ends_the_legs_of_its_older_stream(
    hub: AttachHub, taker: Taker, session: AttachSession
) -> None:
    older = await attach(session, Router(stuck=True))
    hub.own(make_leg("old").key, (0,), "router")
    router = Router()
    newer = await attach(session, router)
    assert taker.gone == [[LegKey(RequestId("old"), 1)]]
    hub.own(make_leg("new").key, (0,), "router")
    await asyncio.wait_for(older, 5)
    assert len(taker.gone) == 1, "the older stream's end took what belongs to the newer one"
    router.outgoing.put_nowait(grpc.aio.EOF)
    await asyncio.wait_for(newer, 5)
    assert taker.gone[1:] == [[LegKey(RequestId("new"), 1)]]


async def test_a_router_that_reads_nothing_is_let_go(hub: AttachHub, taker: Taker, session: AttachSession) -> None:
    stream = await attach(session, Router(stuck=True))
    hub.own(make_leg("old").key, (0,), "router")
    for _ in range(MAX_QUEUED_STEPS + 2):
        hub.deliver((), (), worker_pb2.LoadReport(), {})
    await asyncio.wait_for(stream, 5)
    assert taker.gone == [[LegKey(RequestId("old"), 1)]]
    assert not hub.is_attached("router")


def submit(request_id: str, **changes: Any) -> worker_pb2.AttachRequest:
    leg = encode_leg(make_leg(request_id))
    for name, value in changes.items():
        leg.ClearField(name)  # type: ignore[arg-type]
        if value is not None:
            getattr(leg, name).extend(value)
    return worker_pb2.AttachRequest(submit=worker_pb2.Submit(leg=leg))


@pytest.mark.parametrize(
    "changes",
    [{"choice_indices": None}, {"choice_indices": [0, 0]}, {"prompt_token_ids": None}, {"sampling": None}],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_leg_that_can_not_be_read_is_refused_and_the_stream_goes_on(
    hub: AttachHub, session: AttachSession, changes: dict[str, Any]
) -> None:
    router = Router()
    stream = await attach(session, router)
    router.outgoing.put_nowait(submit("poison", **changes))
    router.outgoing.put_nowait(submit("fine"))
    await asyncio.sleep(0.01)
    ends = [end for message in router.received if message.HasField("step") for end in message.step.ends]
    assert [(end.request_id, end.reason, end.status) for end in ends] == [
        ("poison", worker_pb2.LEG_END_REASON_REJECTED, "INVALID_ARGUMENT")
    ]
    assert hub.num_legs == 1
    assert not stream.done()
    router.outgoing.put_nowait(grpc.aio.EOF)
    await asyncio.wait_for(stream, 5)


async def test_a_leg_that_nobody_foresaw_is_refused_and_the_stream_goes_on(hub: AttachHub) -> None:
    class Exploding(Taker):
        def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None:
            if leg.request_id == "poison":
                raise RuntimeError("unforeseen")

    router = Router()
    stream = await attach(AttachSession(hub, Exploding(), worker_pb2.WorkerRegistration, lease_s=LEASE_S), router)
    router.outgoing.put_nowait(submit("poison"))
    router.outgoing.put_nowait(submit("fine"))
    await asyncio.sleep(0.01)
    ends = [end for message in router.received if message.HasField("step") for end in message.step.ends]
    assert [(end.request_id, end.status) for end in ends] == [("poison", "INTERNAL")]
    assert "unforeseen" in ends[0].message
    assert hub.num_legs == 1
    router.outgoing.put_nowait(grpc.aio.EOF)
    await asyncio.wait_for(stream, 5)


async def test_a_router_that_hangs_is_let_go(hub: AttachHub, taker: Taker, session: AttachSession) -> None:
    router = Router()
    stream = await attach(session, router)
    hub.own(make_leg("old").key, (0,), "router")
    for _ in range(3):
        await asyncio.sleep(LEASE_S / 2)
        assert hub.is_attached("router"), "it speaks"
        router.outgoing.put_nowait(worker_pb2.AttachRequest(heartbeat=worker_pb2.Heartbeat()))
    await asyncio.wait_for(stream, 5)
    assert taker.gone == [[LegKey(RequestId("old"), 1)]]


async def test_a_router_of_the_version_before_need_not_speak(hub: AttachHub, session: AttachSession) -> None:
    router = Router(version=OLDEST_PROTOCOL_VERSION)
    stream = await attach(session, router)
    await asyncio.sleep(2 * LEASE_S)
    assert hub.is_attached("router")
    router.outgoing.put_nowait(grpc.aio.EOF)
    await asyncio.wait_for(stream, 5)
