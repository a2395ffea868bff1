"""A leg's hand-over ends in the books of the hub and of the engine too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from common.engine.sampled_token import SequenceResult
from common.engine.scheduler_output import ScheduledSequence
from common.request import Leg
from common.transport.channels import PeerChannels
from common.worker.worker import Worker
from prefill_worker.hand_over import HandOver
from protos import layout_pb2, transfer_pb2
from protos import worker_pb2 as pb
from protos.sampling_pb2 import FINISH_REASON_LENGTH
from tests.support.departures import departures_of
from tests.support.engine import HashEngine, make_leg

PROMPT = range(1, 9)  # one block


def target_without_sink() -> transfer_pb2.PushTarget:
    """Nobody listens there, and nothing is missing there."""
    return transfer_pb2.PushTarget(
        ticket=transfer_pb2.Ticket(ticket_id="ticket", generation=1),
        sink_ranks=[layout_pb2.RankEndpoint(address="127.0.0.1:1")],
        map=transfer_pb2.BlockMap(groups=[transfer_pb2.GroupBlockMap(group_id=0, block_ids=[0], present=[True])]),
    )


@asynccontextmanager
async def prefilling() -> AsyncIterator[tuple[HashEngine, Worker, HandOver]]:
    def crash(error: BaseException) -> None:
        raise error

    engine = HashEngine()
    worker = Worker(engine.engine, publish=lambda events: None, on_crash=crash)
    worker.engine.start()
    channels = PeerChannels()
    departures = departures_of(worker, channels)
    try:
        async with asyncio.timeout(5):
            yield engine, worker, HandOver(worker, departures)
    finally:
        await departures.close()
        await worker.engine.stop()
        await channels.close()


async def nothing_is_left(worker: Worker) -> None:
    while worker.hub.num_legs or (await worker.engine.call(lambda engine: engine.check_integrity())).num_requests:
        await asyncio.sleep(0.01)


def submit_and_cancel(hand_over: HandOver, leg: Leg) -> None:
    hand_over.submit(leg, target_without_sink())
    time.sleep(0.2)  # the token is drawn, and the event loop has not heard of it yet
    hand_over.cancel(leg.key, ())


async def test_a_cancel_that_crosses_the_first_token_leaves_nothing() -> None:
    async with prefilling() as (_, worker, hand_over):
        worker.hub.attach("router")
        leg = make_leg(PROMPT)
        worker.hub.own(leg.key, leg.choice_indices, "router")
        submit_and_cancel(hand_over, leg)
        await nothing_is_left(worker)


async def test_an_answer_that_ends_with_its_first_token_is_told() -> None:
    """The sink has every block, so that the transfer ends at once, with the leg's last choice."""
    async with prefilling() as (_, worker, hand_over):
        stream = worker.hub.attach("router")
        leg = make_leg(PROMPT, choices=2, max_tokens=1)
        worker.hub.own(leg.key, leg.choice_indices, "router")
        hand_over.submit(leg, target_without_sink())
        told: dict[int, int] = {}
        while len(told) < 2:
            step = (await stream.outgoing.get()).step
            told |= {output.choice_index: output.finish_reason for output in step.outputs}
        assert set(told.values()) == {FINISH_REASON_LENGTH}
        await nothing_is_left(worker)


async def test_a_leg_that_fails_before_its_first_token_is_told() -> None:
    async with prefilling() as (engine, worker, hand_over):
        stream = worker.hub.attach("router")
        leg = make_leg(PROMPT)

        def break_down(entry: ScheduledSequence, result: SequenceResult) -> SequenceResult:
            if entry.sequence.leg.request_id == leg.request_id:
                raise ValueError("this prompt makes a step raise")
            return result

        engine.runner.after_execute = break_down
        worker.hub.own(leg.key, leg.choice_indices, "router")
        hand_over.submit(leg, target_without_sink())
        while not (ends := (await stream.outgoing.get()).step.ends):
            pass
        assert ends[0].reason == pb.LEG_END_REASON_FAILED
        await nothing_is_left(worker)
