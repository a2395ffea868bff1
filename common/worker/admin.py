"""The Admin service of a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

from common.engine.sequence_status import SequenceStatus
from common.kv.ticket import Ticket
from common.kv.ticket_table import TicketTable
from common.worker.drain import Drain
from common.worker.engine_thread import EngineThread
from protos import admin_pb2 as pb
from protos import admin_pb2_grpc, worker_pb2

Context = grpc.aio.ServicerContext[Any, Any]


class WorkerAdminServicer(admin_pb2_grpc.AdminServicer):
    """`tickets` is None on a worker that receives nothing."""

    def __init__(
        self,
        engine: EngineThread,
        registration: Callable[[], worker_pb2.WorkerRegistration],
        load: Callable[[], worker_pb2.LoadReport],
        tickets: TicketTable | None,
        drain: Drain,
    ) -> None:
        self._drain = drain
        self._engine = engine
        self._registration = registration
        self._load = load
        self._tickets = tickets
        self._started_s = time.monotonic()

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        who = self._registration()
        status = pb.WorkerStatus(
            worker_id=who.worker_id,
            incarnation=who.incarnation,
            role=who.role,
            state=who.state,
            model=who.model,
            address=who.ranks[0].address,
            reachable=True,
            load=self._load(),
            backend=who.backend,
            uptime_s=time.monotonic() - self._started_s,
        )
        return pb.StatusResponse(workers=[status])

    async def ResetPrefixCache(
        self, request: pb.ResetPrefixCacheRequest, context: Context
    ) -> pb.ResetPrefixCacheResponse:
        num_dropped = await self._engine.call(lambda engine: engine.reset_prefix_cache())
        return pb.ResetPrefixCacheResponse(num_dropped_blocks=num_dropped)

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        """Answers at once: ask again, or watch the status, to learn when nothing is left."""
        if request.undo:
            self._drain.undo()
        else:
            self._drain.begin()
        return pb.DrainResponse(state=self._registration().state, num_requests=self._drain.num_left)

    async def CheckIntegrity(self, request: pb.CheckIntegrityRequest, context: Context) -> pb.CheckIntegrityResponse:
        if self._tickets is not None:
            self._tickets.check_integrity()
        books = await self._engine.call(lambda engine: engine.check_integrity())
        return pb.CheckIntegrityResponse(
            num_blocks=books.num_blocks,
            num_free_blocks=books.num_free_blocks,
            num_used_blocks=books.num_used_blocks,
            num_quarantined_blocks=books.num_quarantined_blocks,
            num_used_host_blocks=books.num_used_host_blocks,
            num_reservations=books.num_reservations,
            num_requests=books.num_requests,
        )

    async def ListRequests(self, request: pb.ListRequestsRequest, context: Context) -> pb.ListRequestsResponse:
        statuses = await self._engine.call(lambda engine: engine.statuses())
        return pb.ListRequestsResponse(requests=map(_encode_request, statuses))

    async def ListTickets(self, request: pb.ListTicketsRequest, context: Context) -> pb.ListTicketsResponse:
        return pb.ListTicketsResponse(tickets=map(_encode_ticket, self._tickets or ()))


def _encode_request(status: SequenceStatus) -> pb.RequestStatus:
    return pb.RequestStatus(
        request_id=status.request_id,
        attempt=status.attempt,
        choice_indices=status.choice_indices,
        stage=f"REQUEST_STAGE_{status.stage.name}",
        prompt_tokens=status.num_prompt_tokens,
        output_tokens=status.num_output_tokens,
        computed_tokens=status.num_computed_tokens,
    )


def _encode_ticket(ticket: Ticket) -> pb.TicketStatus:
    return pb.TicketStatus(
        request_id=ticket.offer.request_id,
        attempt=ticket.offer.attempt,
        state=f"TICKET_STATE_{ticket.state.name}",
        source_worker_id=ticket.offer.source_worker_id or "",
        received_bytes=ticket.received_bytes,
        quarantined=ticket.quarantined,
    )
