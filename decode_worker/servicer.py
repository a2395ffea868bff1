"""The DecodeWorker service."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from common.errors import InvalidRequestError
from common.kv.ticket import Ticket, TicketOffer, TransferReason
from common.net.leg_codec import decode_leg
from common.request import WorkerId
from common.transport.push_target import encode_maps
from common.worker.attach_session import AttachSession
from common.worker.worker import Worker
from decode_worker.arrivals import Arrivals
from protos import transfer_pb2, worker_pb2, worker_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class DecodeWorkerServicer(worker_pb2_grpc.DecodeWorkerServicer):
    def __init__(
        self,
        worker: Worker,
        arrivals: Arrivals,
        session: AttachSession,
        registration: Callable[[], worker_pb2.WorkerRegistration],
    ) -> None:
        self._worker = worker
        self._arrivals = arrivals
        self._session = session
        self._registration = registration

    async def Attach(self, request_iterator: object, context: Context) -> None:
        await self._session.run(context)

    async def Reserve(self, request: worker_pb2.ReserveRequest, context: Context) -> worker_pb2.ReserveResponse:
        leg = decode_leg(request.leg)
        offer = TicketOffer(
            request_id=leg.request_id,
            attempt=leg.attempt,
            choice_indices=leg.choice_indices,
            source_worker_id=WorkerId(request.source_worker_id) if request.source_worker_id else None,
            reason=_decode_reason(request.reason),
        )
        map_after_s = None if request.map_now else request.map_after_ms / 1000
        ticket, reservation = await self._arrivals.reserve(leg, offer, request.router_id, map_after_s=map_after_s)
        return worker_pb2.ReserveResponse(
            ticket=self._encode_ticket(ticket),
            credit_tokens=reservation.credit_tokens,
            map=encode_maps(ticket.maps) if ticket.maps else None,
            sink_ranks=self._registration().ranks,
            cached_blocks=reservation.cached_blocks,
            load=self._worker.load_report(),
        )

    async def Abort(self, request: worker_pb2.AbortRequest, context: Context) -> worker_pb2.AbortResponse:
        self._arrivals.abort(request.ticket_id, request.reason)
        return worker_pb2.AbortResponse()

    async def Release(self, request: worker_pb2.ReleaseRequest, context: Context) -> worker_pb2.ReleaseResponse:
        self._arrivals.release(request.ticket_id)
        return worker_pb2.ReleaseResponse()

    def _encode_ticket(self, ticket: Ticket) -> transfer_pb2.Ticket:
        who = self._registration()
        return transfer_pb2.Ticket(
            ticket_id=ticket.ticket_id,
            source_worker_id=ticket.offer.source_worker_id or "",
            sink_worker_id=who.worker_id,
            sink_incarnation=who.incarnation,
            reason=transfer_pb2.TransferReason.Name(int(ticket.offer.reason)),
            generation=ticket.generation,
            lease_ms=int(self._arrivals.sink.table.lease_s * 1000),
        )


def _decode_reason(reason: transfer_pb2.TransferReason) -> TransferReason:
    try:
        return TransferReason(int(reason))
    except ValueError:
        raise InvalidRequestError("reason", f"{reason} is no transfer reason of this version") from None
