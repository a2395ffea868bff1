"""A transfer out of a worker ends once, whatever breaks it, and never while something reads the blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from common.engine.results import BlocksComputed, HandedOver
from common.errors import OverloadedError, SlipstreamError, StaleTicketError, UnavailableError
from common.kv.block_map import GroupMap
from common.kv.first_token import FirstToken
from common.kv.ticket import BlockRef
from common.request import LegKey, RequestId
from common.transport.channels import PeerChannels
from common.transport.push_target import PushTarget, SinkEndpoint
from common.transport.sink_control import SinkControl
from common.worker.departure import Departure
from protos import worker_pb2

KEY = LegKey(RequestId("r"), 1)
MAPS = (GroupMap(group_id=0, block_ids=(5, 6), present=(True, False)),)
LEASE_S = 0.3


class Sink(SinkControl):
    """Answers Map as told, and remembers what failed."""

    def __init__(self, *answers: SlipstreamError | None) -> None:
        super().__init__(PeerChannels())
        self.answers = list(answers)
        self.failures: list[str] = []

    async def map(self, target: PushTarget) -> PushTarget:
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        return PushTarget(ticket_id=target.ticket_id, generation=1, sinks=target.sinks, maps=MAPS)

    async def fail(self, target: PushTarget, reason: str) -> None:
        self.failures.append(reason)


class Sender:
    """A KVSender over which nothing moves. `stuck`: its pushes end only when they are cancelled."""

    num_sent_blocks = 1

    def __init__(self, *commits: BaseException | None, stuck: bool = False) -> None:
        self.commits = list(commits)
        self.pushed: list[tuple[BlockRef, int]] = []
        self.num_sent_bytes = 0
        self.reading = self.closed = False
        self._stuck = stuck

    async def push(self, blocks: Sequence[tuple[BlockRef, int]]) -> None:
        self.reading = True
        try:
            if self._stuck:
                await asyncio.Event().wait()
            self.pushed += blocks
        finally:
            self.reading = False

    async def commit(self, *, num_computed_tokens: int, first_tokens: Sequence[FirstToken], attempt: int) -> None:
        answer = self.commits.pop(0)
        if answer is not None:
            raise answer

    def close(self) -> None:
        self.closed = True


class Ending:
    """Where a departure's end is told."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self.ends: list[worker_pb2.LegEnd | None] = []

    def __call__(self, departure: Departure, end: worker_pb2.LegEnd | None) -> None:
        assert not self._sender.reading, "the blocks are given back while they are read"
        self.ends.append(end)


def depart(sink: Sink, sender: Sender, maps: tuple[GroupMap, ...] | None = MAPS) -> tuple[Departure, Ending]:
    ending = Ending(sender)
    target = PushTarget(ticket_id="ticket", generation=1, sinks=(SinkEndpoint(address="127.0.0.1:1"),), maps=maps)
    return Departure(KEY, (0,), target, sink, lambda target: sender, ending, lease_s=LEASE_S), ending


def compute(departure: Departure) -> None:
    departure.computed(
        BlocksComputed(
            request_id=KEY.request_id,
            attempt=1,
            choice_indices=(0,),
            group_id=0,
            first_logical_block=0,
            block_ids=(8, 9),
        )
    )


def hand_over(departure: Departure) -> None:
    departure.handed_over(
        HandedOver(request_id=KEY.request_id, attempt=1, choice_indices=(0,), num_computed_tokens=20, first_tokens=())
    )


@pytest.fixture
async def ticking() -> AsyncIterator[list[Departure]]:
    """Departures whose sinks are watched."""
    watched: list[Departure] = []

    async def watch() -> None:
        while True:
            await asyncio.sleep(LEASE_S / 8)
            for departure in watched:
                departure.expire()

    task = asyncio.create_task(watch())
    yield watched
    task.cancel()


async def ended(departure: Departure, ending: Ending) -> worker_pb2.LegEnd | None:
    await asyncio.wait_for(departure.ended.wait(), 5)
    (end,) = ending.ends
    return end


@pytest.mark.parametrize("late", [False, True])
async def test_only_what_the_sink_lacks_is_sent(late: bool) -> None:
    sender = Sender(None)
    departure, ending = depart(Sink(None), sender, None if late else MAPS)
    compute(departure)
    hand_over(departure)
    end = await ended(departure, ending)
    assert end is not None and end.reason == worker_pb2.LEG_END_REASON_HANDED_OVER
    assert sender.pushed == [(BlockRef(0, 1), 9)]


async def test_the_last_push_is_part_of_the_time_that_the_transfer_took() -> None:
    class Slow(Sender):
        async def push(self, blocks: Sequence[tuple[BlockRef, int]]) -> None:
            await asyncio.sleep(0.05)
            await super().push(blocks)

    departure, ending = depart(Sink(None), Slow(None))
    compute(departure)
    hand_over(departure)
    end = await ended(departure, ending)
    assert end is not None and end.transfer_ms >= 50


@pytest.mark.parametrize(
    ("error", "status"), [(StaleTicketError("stale"), "FAILED_PRECONDITION"), (KeyError("bug"), "INTERNAL")]
)
async def test_what_broke_is_told(error: Exception, status: str) -> None:
    sink = Sink()
    departure, ending = depart(sink, Sender(error))
    hand_over(departure)
    end = await ended(departure, ending)
    assert end is not None
    assert end.reason == worker_pb2.LEG_END_REASON_TRANSFER_FAILED
    assert end.status == status
    await asyncio.sleep(0)
    assert len(sink.failures) == 1


async def test_a_commit_whose_answer_was_lost_is_asked_again() -> None:
    departure, ending = depart(Sink(), Sender(UnavailableError("lost"), None))
    hand_over(departure)
    end = await ended(departure, ending)
    assert end is not None and end.reason == worker_pb2.LEG_END_REASON_HANDED_OVER


async def test_a_sink_without_blocks_is_asked_again() -> None:
    departure, ending = depart(Sink(OverloadedError("no room"), None), Sender(None), maps=None)
    compute(departure)
    departure.ask_map()
    await asyncio.sleep(0.2)
    assert not departure.is_mapped, "nothing asks again before it is needed"
    hand_over(departure)
    end = await ended(departure, ending)
    assert end is not None and end.reason == worker_pb2.LEG_END_REASON_HANDED_OVER


async def test_a_sink_without_blocks_does_not_hold_ours_for_ever() -> None:
    """It may be full of what waits to be computed here, where what it has no blocks for is in the way."""
    sink, sender = Sink(*(OverloadedError("no room") for _ in range(1000))), Sender()
    departure, ending = depart(sink, sender, maps=None)
    compute(departure)
    hand_over(departure)
    end = await ended(departure, ending)
    assert end is not None and end.reason == worker_pb2.LEG_END_REASON_TRANSFER_FAILED
    assert end.status == OverloadedError.status
    assert not sender.pushed
    await asyncio.sleep(0)
    assert len(sink.failures) == 1, "the credit is given back"


async def test_a_push_that_hangs_is_given_up_with_its_leg() -> None:
    sink, sender = Sink(), Sender(stuck=True)
    departure, ending = depart(sink, sender)
    compute(departure)
    await asyncio.sleep(0.01)
    assert sender.reading
    departure.give_up("cancelled")
    assert await ended(departure, ending) is None
    await asyncio.sleep(0)
    assert sink.failures == ["cancelled"]
    assert sender.closed


async def test_a_silent_sink_is_given_up_after_the_lease(ticking: list[Departure]) -> None:
    departure, ending = depart(Sink(), Sender(stuck=True))
    ticking.append(departure)
    compute(departure)
    end = await ended(departure, ending)
    assert end is not None
    assert end.reason == worker_pb2.LEG_END_REASON_TRANSFER_FAILED
    assert end.status == "UNAVAILABLE"


async def test_given_up_before_a_push_began_it_ends_too() -> None:
    departure, ending = depart(Sink(), Sender())
    compute(departure)
    departure.give_up("cancelled")
    assert await ended(departure, ending) is None
