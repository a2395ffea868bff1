"""The decode role: grants room, keeps tickets and engine in step, and starts what has arrived."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from common.engine.results import Reservation
from common.errors import OverloadedError, StaleTicketError
from common.kv.ticket import Admit, CancelLeg, Drop, EndQuarantine, Ticket, TicketAction, TicketOffer, TicketState
from common.kv.ticket_table import TicketTable
from common.request import Leg, LegKey
from common.transport.ticket_sink import TicketSink
from common.worker.worker import Worker
from decode_worker.moves import Moves
from protos import transfer_pb2, worker_pb2

logger = logging.getLogger(__name__)


class Arrivals:
    """A LegTaker. Owned by the event loop.

    A ticket lives as long as its router is attached: the router ends it on every path, and its stream's end
    stands for it when it can't.
    """

    def __init__(self, worker: Worker, table: TicketTable, moves: Moves) -> None:
        self._worker = worker
        self._moves = moves
        self.sink = TicketSink(table, self._carry_out)
        self._routers: dict[str, str] = {}  # ticket id → router id
        self._tickets: dict[LegKey, str] = {}

    async def reserve(
        self, leg: Leg, offer: TicketOffer, router_id: str, *, map_after_s: float | None
    ) -> tuple[Ticket, Reservation]:
        """A ticket with a credit, mapped when `map_after_s` is None; else `map` is expected in so many seconds.

        Raises OverloadedError when there is no room, StaleTicketError when the router went away meanwhile.
        """
        if self._worker.draining:
            raise OverloadedError("this worker is draining")
        if not self._worker.hub.is_attached(router_id):
            raise OverloadedError(f"router {router_id} is not attached")
        ticket = self.sink.table.offer(offer, self.sink.now())
        key = leg.key
        self._routers[ticket.ticket_id] = router_id
        self._tickets[key] = ticket.ticket_id
        self._worker.hub.own(key, leg.choice_indices, router_id)
        granting = asyncio.ensure_future(self._grant(ticket, leg, map_after_s))
        try:
            return ticket, await asyncio.shield(granting)
        except BaseException as error:
            # Refused, or the caller is gone: then the grant, when it comes, finds its ticket ended.
            self.abort(ticket.ticket_id, f"not reserved: {error!r}")
            granting.add_done_callback(_retrieve)
            raise

    async def map(self, ticket_id: str) -> Ticket:
        """The ticket with the places of its blocks; mapped already, it is answered alike.

        Raises OverloadedError while there are no blocks, StaleTicketError when the ticket has ended.
        """
        table = self.sink.table
        table.touch(ticket_id, self.sink.now())
        ticket = table.get(ticket_id)
        if ticket.state is TicketState.CREDITED:
            reservation_id = ticket.reservation_id
            assert reservation_id is not None
            # Asked twice at the same time, the engine answers alike.
            maps = await self._worker.engine.call(lambda engine: engine.map_reservation(reservation_id))
            if ticket.state is TicketState.CREDITED:
                table.map(ticket_id, maps, self.sink.now())
            self.sink.settle()
        if not ticket.state.is_open:
            raise StaleTicketError(f"the ticket has ended ({ticket.state})")
        return ticket

    def abort(self, ticket_id: str, reason: str) -> None:
        """Idempotent, legal in any state."""
        self.sink.table.abort(ticket_id, reason, self.sink.now())
        self._settle_ended(ticket_id)

    def release(self, ticket_id: str) -> None:
        """Idempotent, legal in any state."""
        self.sink.table.release(ticket_id, self.sink.now())
        self._settle_ended(ticket_id)

    def keep(self, key: LegKey, choice_index: int) -> None:
        self._moves.keep(key, choice_index)

    def move(self, move: worker_pb2.Move) -> None:
        self._moves.move(move)

    def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None:
        """A leg that this worker prefills itself."""
        self._worker.submit(leg, hand_over=False)

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...]) -> None:
        ticket_id = self._tickets.get(key)
        if ticket_id is not None and not choice_indices:
            self.abort(ticket_id, "cancelled")
        self._moves.cancel(key, choice_indices)
        self._worker.cancel(key, choice_indices)

    def router_gone(self, router_id: str, orphans: list[LegKey]) -> None:
        for ticket_id, owner in list(self._routers.items()):
            if owner == router_id:
                self.abort(ticket_id, f"router {router_id} went away")
        self._moves.router_gone(router_id)
        for key in orphans:
            self._worker.cancel(key)

    async def keep_leases(self) -> None:
        """Renews tickets of attached routers, and ends those whose lease ran out. Until cancelled."""
        table = self.sink.table
        while True:
            await asyncio.sleep(table.lease_s / 4)
            now = self.sink.now()
            for ticket_id, router_id in self._routers.items():
                if self._worker.hub.is_attached(router_id) and table.get(ticket_id).state.is_open:
                    table.touch(ticket_id, now)
            for ticket in table.expire(now):
                logger.warning("ticket of %s expired", ticket.offer.request_id)
                self._settle_ended(ticket.ticket_id)
            self.sink.settle()

    async def _grant(self, ticket: Ticket, leg: Leg, map_after_s: float | None) -> Reservation:
        reservation = await self._worker.engine.call(lambda engine: engine.reserve(leg, map_after_s=map_after_s))
        table, now = self.sink.table, self.sink.now()
        try:
            table.credit(
                ticket.ticket_id,
                reservation_id=reservation.reservation_id,
                credit_tokens=reservation.credit_tokens,
                num_tokens=reservation.num_tokens,
                now=now,
            )
            if reservation.maps is not None:
                table.map(ticket.ticket_id, reservation.maps, now)
        finally:
            self.sink.settle()
        return reservation

    def _settle_ended(self, ticket_id: str) -> None:
        self.sink.settle()
        self._forget(ticket_id)

    def _forget(self, ticket_id: str) -> None:
        self._routers.pop(ticket_id, None)
        for key, known in list(self._tickets.items()):
            if known == ticket_id:
                del self._tickets[key]
                self._worker.hub.disown(key)

    def _carry_out(self, action: TicketAction) -> Awaitable[None] | None:
        engine = self._worker.engine
        match action:
            case Admit():
                self._routers.pop(action.ticket_id, None)
                offer = self.sink.table.get(action.ticket_id).offer
                key = LegKey(offer.request_id, offer.attempt)
                self._tickets.pop(key, None)
                # The engine never hears of choices that prefill has finished.
                finished = [token.choice_index for token in action.first_tokens if token.finished]
                self._worker.hub.close_choices(key, finished)
                return engine.call(
                    lambda engine: engine.commit(action.reservation_id, action.first_tokens, action.attempt)
                )
            case Drop():
                self._forget(action.ticket_id)  # the source may have ended it, and its router never say so
                engine.post(
                    lambda engine: engine.release_reservation(action.reservation_id, quarantine=action.quarantine)
                )
            case EndQuarantine():
                engine.post(lambda engine: engine.end_quarantine(action.reservation_id))
            case CancelLeg():
                engine.post(lambda engine: engine.cancel(action.request_id, action.attempt, action.choice_indices))
        return None


def _retrieve(granting: asyncio.Future[Reservation]) -> None:
    if not granting.cancelled():
        granting.exception()  # told already, or nobody is left to tell
