"""What a worker tells operators of its transfers."""

from __future__ import annotations

from typing import Any

from common.kv.block_map import GroupMap
from common.kv.ticket import BlockRef, TicketOffer, TransferReason
from common.kv.ticket_table import TicketTable
from common.request import RequestId, WorkerId
from common.worker.admin import WorkerAdminServicer
from protos import admin_pb2 as pb
from tests.support.engine import tiny_spec


async def told(table: TicketTable | None) -> list[pb.TicketStatus]:
    # Neither the engine nor the registration is asked.
    nobody: Any = None
    admin = WorkerAdminServicer(engine=nobody, registration=nobody, load=nobody, tickets=table, drain=nobody)
    response = await admin.ListTickets(pb.ListTicketsRequest(), nobody)
    return list(response.tickets)


async def test_tickets_are_told_with_their_states_and_without_their_ids() -> None:
    table = TicketTable(spec=tiny_spec(8), lease_s=10.0)
    offer = TicketOffer(
        request_id=RequestId("r"),
        attempt=2,
        choice_indices=(0,),
        source_worker_id=WorkerId("prefill-0"),
        reason=TransferReason.HANDOVER,
    )
    ticket = table.offer(offer, now=0.0)
    (status,) = await told(table)
    assert (status.request_id, status.attempt, status.source_worker_id) == ("r", 2, "prefill-0")
    assert status.state == pb.TICKET_STATE_OFFERED

    table.credit(ticket.ticket_id, reservation_id="x", credit_tokens=16, num_tokens=16, now=0.0)
    generation = table.map(ticket.ticket_id, (GroupMap(group_id=0, block_ids=(3, 4), present=(False, False)),), now=0.0)
    stream_id = table.open_stream(ticket.ticket_id, generation=generation, rank=0, now=0.0)
    table.place(ticket.ticket_id, stream_id, BlockRef(0, 0), offset=0, length=8, now=0.0)
    (status,) = await told(table)
    assert (status.state, status.received_bytes) == (pb.TICKET_STATE_SENDING, 8)

    table.abort(ticket.ticket_id, "enough", now=0.0)
    (status,) = await told(table)
    assert (status.state, status.quarantined) == (pb.TICKET_STATE_FAILED, True)
    assert ticket.ticket_id not in str(status)


async def test_a_worker_that_receives_nothing_has_no_tickets() -> None:
    assert await told(None) == []
