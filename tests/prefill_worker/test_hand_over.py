"""A leg's hand-over ends in the books of the hub and of the engine too."""

from __future__ import annotations

import asyncio
import time

from common.request import Leg
from common.transport.channels import PeerChannels
from common.worker.worker import Worker
from prefill_worker.hand_over import HandOver
from protos import layout_pb2, transfer_pb2
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


def submit_and_cancel(hand_over: HandOver, leg: Leg) -> None:
    hand_over.submit(leg, target_without_sink())
    time.sleep(0.2)  # the token is drawn, and the event loop has not heard of it yet
    hand_over.cancel(leg.key, ())


async def test_a_cancel_that_crosses_the_first_token_leaves_nothing() -> None:
    def crash(error: BaseException) -> None:
        raise error

    engine = HashEngine().engine
    worker = Worker(engine, publish=lambda events: None, on_crash=crash)
    worker.engine.start()
    channels = PeerChannels()
    departures = departures_of(worker, channels)
    hand_over = HandOver(worker, departures)
    worker.hub.attach("router")
    leg = make_leg(PROMPT)
    worker.hub.own(leg.key, leg.choice_indices, "router")
    submit_and_cancel(hand_over, leg)
    async with asyncio.timeout(5):
        while worker.hub.num_legs or (await worker.engine.call(lambda engine: engine.check_integrity())).num_requests:
            await asyncio.sleep(0.01)
    await departures.close()
    await worker.engine.stop()
    await channels.close()
