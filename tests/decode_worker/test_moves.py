"""What is kept for a move is given back, however it is not wanted any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from common.kv.ticket_table import TicketTable
from common.request import Leg
from common.transport.channels import PeerChannels
from common.worker.worker import Worker
from decode_worker.arrivals import Arrivals
from decode_worker.moves import Moves
from tests.support.departures import departures_of
from tests.support.engine import HashEngine, make_leg, tiny_spec

TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Parts:
    worker: Worker
    moves: Moves
    arrivals: Arrivals

    def decode(self, leg: Leg) -> None:
        """Has a leg decode: its prompt and two tokens are computed when the next call to the engine runs."""
        self.worker.hub.own(leg.key, leg.choice_indices, "router")
        self.worker.engine.call(lambda engine: [engine.submit(leg), engine.step(), engine.step()])

    async def num_requests(self) -> int:
        return (await self.worker.engine.call(lambda engine: engine.check_integrity())).num_requests


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    def crash(error: BaseException) -> None:
        raise error

    worker = Worker(HashEngine().engine, publish=lambda events: None, on_crash=crash)
    worker.engine.start()
    worker.hub.attach("router")
    channels = PeerChannels()
    moves = Moves(worker, departures_of(worker, channels))
    yield Parts(worker, moves, Arrivals(worker, TicketTable(spec=tiny_spec(), lease_s=10.0), moves))
    await worker.engine.stop()
    await channels.close()


LEG = make_leg(range(1, 9), max_tokens=400, ignore_eos=True)


async def wait_kept(parts: Parts) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not parts.moves._held:
            await asyncio.sleep(0.01)


async def wait_idle(parts: Parts) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not parts.moves.is_idle or await parts.num_requests() or parts.worker.hub.num_legs:
            await asyncio.sleep(0.01)


async def test_a_cancel_gives_back_what_is_kept(parts: Parts) -> None:
    parts.decode(LEG)
    parts.moves.keep(LEG.key, 0)
    await wait_kept(parts)
    assert await parts.num_requests() == 1
    parts.arrivals.cancel(LEG.key, ())
    await wait_idle(parts)


async def test_a_cancel_that_comes_while_the_engine_is_asked_to_keep(parts: Parts) -> None:
    """Such as that of a stop string, which its router finds in the last tokens before."""
    parts.decode(LEG)
    parts.moves.keep(LEG.key, 0)
    parts.arrivals.cancel(LEG.key, ())
    await wait_idle(parts)


async def test_a_router_that_goes_away_gives_up_what_is_kept(parts: Parts) -> None:
    parts.decode(LEG)
    parts.moves.keep(LEG.key, 0)
    await wait_kept(parts)
    stream = parts.worker.hub.stream_of("router")
    assert stream is not None
    orphans = parts.worker.hub.detach(stream)
    assert orphans is not None
    parts.arrivals.router_gone("router", orphans)
    await wait_idle(parts)
