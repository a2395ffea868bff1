"""Tickets, the engine and the hub's legs end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from common.kv.first_token import FirstToken
from common.kv.ticket import BlockRef, RankCommit, Ticket, TicketOffer, TicketState, TransferReason
from common.kv.ticket_table import TicketTable
from common.request import Leg
from common.transport.channels import PeerChannels
from common.worker.worker import Worker
from decode_worker.arrivals import Arrivals
from decode_worker.moves import Moves
from tests.support.departures import departures_of
from tests.support.engine import HashEngine, make_leg, tiny_spec

LEASE_S = 0.1
PROMPT = range(1, 9)  # one block


@pytest.fixture
async def arrivals() -> AsyncIterator[Arrivals]:
    def crash(error: BaseException) -> None:
        raise error

    worker = Worker(HashEngine().engine, publish=lambda events: None, on_crash=crash)
    worker.engine.start()
    worker.hub.attach("router")
    channels = PeerChannels()
    moves = Moves(worker, departures_of(worker, channels))
    yield Arrivals(worker, TicketTable(spec=tiny_spec(), lease_s=LEASE_S, memory_s=LEASE_S), moves)
    await worker.engine.stop()
    await channels.close()


async def reserve(arrivals: Arrivals, leg: Leg) -> Ticket:
    offer = TicketOffer(
        request_id=leg.request_id,
        attempt=leg.attempt,
        choice_indices=leg.choice_indices,
        source_worker_id=None,
        reason=TransferReason.HANDOVER,
    )
    ticket, _ = await arrivals.reserve(leg, offer, "router", map_after_s=None)
    return ticket


async def commit(arrivals: Arrivals, ticket: Ticket, first_tokens: tuple[FirstToken, ...]) -> None:
    """As the receiver does it, with the one block that is missing."""
    table, now, ticket_id = arrivals.sink.table, arrivals.sink.now(), ticket.ticket_id
    stream = table.open_stream(ticket_id, generation=ticket.generation, rank=0, now=now)
    ref = BlockRef(0, 0)
    table.place(ticket_id, stream, ref, offset=0, length=tiny_spec().groups[0].bytes_per_block, now=now)
    table.close_stream(ticket_id, stream, now)
    rank_commit = RankCommit(
        generation=ticket.generation,
        rank=0,
        num_ranks=1,
        num_computed_tokens=len(PROMPT),
        checksums={ref: 1},
        first_tokens=first_tokens,
        attempt=1,
    )
    table.commit(ticket_id, rank_commit, {ref: 1}, now)
    await asyncio.gather(*arrivals.sink.settle())


async def wait_for_no_leg(arrivals: Arrivals) -> None:
    async with asyncio.timeout(5):
        while arrivals._worker.hub.num_legs:
            await asyncio.sleep(0.01)


async def test_a_choice_that_its_first_token_finished_is_awaited_no_more(arrivals: Arrivals) -> None:
    leg = make_leg(PROMPT, choices=2, max_tokens=3, ignore_eos=True)
    ticket = await reserve(arrivals, leg)
    first_tokens = (
        FirstToken(choice_index=0, token_id=5, finished=True),
        FirstToken(choice_index=1, token_id=6, finished=False),
    )
    await commit(arrivals, ticket, first_tokens)
    await wait_for_no_leg(arrivals)


async def test_a_source_that_fails_ends_everything(arrivals: Arrivals) -> None:
    ticket = await reserve(arrivals, make_leg(PROMPT))
    arrivals.sink.table.abort(ticket.ticket_id, "the source gave up", arrivals.sink.now())
    arrivals.sink.settle()
    assert arrivals._worker.hub.num_legs == 0


async def test_leases_are_kept_after_tickets_that_are_forgotten(arrivals: Arrivals) -> None:
    failed = await reserve(arrivals, make_leg(PROMPT, request_id="failed"))
    keeping = asyncio.create_task(arrivals.keep_leases())
    arrivals.sink.table.abort(failed.ticket_id, "the source gave up", arrivals.sink.now())
    arrivals.sink.settle()
    ticket = await reserve(arrivals, make_leg(PROMPT, request_id="open"))
    await asyncio.sleep(6 * LEASE_S)
    assert arrivals.sink.table.get(ticket.ticket_id).state is TicketState.MAPPED
    assert not keeping.done()
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
