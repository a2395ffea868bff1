"""Where each request is at the moment, as the processes themselves tell it (Admin.ListRequests, Admin.ListTickets)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc

from benchmarks.chaos.cell import Stage
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.stream import Stream
from protos import admin_pb2 as pb
from protos import layout_pb2

TIMEOUT_S = 1.0
LATE_FROM = 0.5
# Every request is for a moment in its router's queue before it is planned.
QUEUED_AFTER_S = 0.2
_TICKET_STAGES = {
    pb.TICKET_STATE_OFFERED: Stage.OFFERED,
    pb.TICKET_STATE_CREDITED: Stage.CREDITED,
    pb.TICKET_STATE_MAPPED: Stage.MAPPED,
    pb.TICKET_STATE_SENDING: Stage.SENDING,
}


@dataclass(slots=True)
class Seen:
    """One request in one look. `router_stage` None: its router was not asked, or does not know it."""

    stages: set[Stage] = field(default_factory=set)
    router_stage: pb.RequestStage | None = None
    attempt: int = 0
    router: str | None = None
    prefill_worker: str | None = None
    decode_worker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All requests at nearly the same moment. `prefilling` are, by prefill worker, those between their chunks."""

    seen: Mapping[str, Seen]
    prefilling: Mapping[str, frozenset[str]]

    def tell(self, request_id: str) -> str:
        """Where a request is, for people."""
        seen = self.seen.get(request_id, Seen())
        stage = "unknown to its router" if seen.router_stage is None else pb.RequestStage.Name(seen.router_stage)
        workers = "-".join(name for name in (seen.prefill_worker, seen.decode_worker) if name) or "no worker"
        return f"{stage} in attempt {seen.attempt} at {workers}, {', '.join(seen.stages) or 'in no stage'}"

    def having(self, stage: Stage) -> list[str]:
        return [request_id for request_id, seen in self.seen.items() if stage in seen.stages]


class Observer:
    """Asks those processes that can answer."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def look(self, streams: Iterable[Stream], *, after: bool = False) -> Look:
        """Prefill workers answer between two steps, the others at once: what changes fastest is asked last.

        `after` a strike, it is asked first.
        """
        of_id = {stream.request_id: stream for stream in streams if stream.running}
        draining = [name for name in self._fleet.workers if self._fleet.processes[name].draining]
        if after:
            routers, sinks, statuses = await self._ask_fast(draining)
            prefills = await self._ask(self._fleet.prefill_workers, _list_requests)
        else:
            prefills = await self._ask(self._fleet.prefill_workers, _list_requests)
            routers, sinks, statuses = await self._ask_fast(draining)
        seen = {request_id: Seen() for request_id in of_id}
        for router, answer in routers.items():
            for status in answer.requests:
                if (request_id := _asked_id(status.request_id)) in seen:
                    _note_at_router(seen[request_id], router, status)
        handing_over: set[str] = set()
        prefilling: dict[str, frozenset[str]] = {}
        for worker, answer in prefills.items():
            at_work = {_asked_id(one.request_id): one for one in answer.requests}
            for request_id, status in at_work.items():
                if request_id in seen:
                    _note_at_prefill(seen[request_id], worker, status)
            handing_over |= {key for key, one in at_work.items() if one.stage == pb.REQUEST_STAGE_HANDING_OVER}
            prefilling[worker] = frozenset(
                key for key, one in at_work.items() if one.stage == pb.REQUEST_STAGE_PREFILLING
            )
        for worker, answer in sinks.items():
            for ticket in answer.tickets:
                if (request_id := _asked_id(ticket.request_id)) in seen:
                    _note_ticket(seen[request_id], worker, ticket, source_waits=request_id in handing_over)
        for request_id, one in seen.items():
            _note_progress(one, of_id[request_id])
            if any(_is_draining(statuses.get(name or "")) for name in (one.prefill_worker, one.decode_worker)):
                one.stages.add(Stage.DRAINING)
        return Look(seen=seen, prefilling=prefilling)

    async def _ask_fast(self, draining: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return await asyncio.gather(
            self._ask(self._fleet.routers, _list_requests),
            self._ask(self._fleet.decode_workers, _list_tickets),
            self._ask(draining, _status),
        )

    async def _ask(self, names: Sequence[str], ask: Callable[[Any], Any]) -> dict[str, Any]:
        """Answers by name, of those that gave one."""
        asked = [name for name in names if self._fleet.processes[name].answers]
        answers = await asyncio.gather(*(ask(self._fleet.admin(name)) for name in asked), return_exceptions=True)
        told = {}
        for name, answer in zip(asked, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, grpc.aio.AioRpcError):
                raise answer
            if not isinstance(answer, BaseException):
                told[name] = answer
        return told


def _list_requests(admin: Any) -> Any:
    return admin.ListRequests(pb.ListRequestsRequest(), timeout=TIMEOUT_S)


def _list_tickets(admin: Any) -> Any:
    return admin.ListTickets(pb.ListTicketsRequest(), timeout=TIMEOUT_S)


def _status(admin: Any) -> Any:
    return admin.Status(pb.StatusRequest(), timeout=TIMEOUT_S)


def _is_draining(status: pb.StatusResponse | None) -> bool:
    """By the worker's own word."""
    return status is not None and status.workers[0].state == layout_pb2.WORKER_STATE_DRAINING


def _asked_id(request_id: str) -> str:
    """The id that the caller gave: the router adds something of its own."""
    return request_id.rpartition("-")[0]


def _note_at_router(seen: Seen, router: str, status: pb.RequestStatus) -> None:
    if seen.router_stage is not None:
        return  # choices that have parted: the first stands for all
    seen.router, seen.router_stage, seen.attempt = router, status.stage, status.attempt
    seen.prefill_worker = status.prefill_worker or None
    seen.decode_worker = status.decode_worker or None
    if status.stage == pb.REQUEST_STAGE_QUEUED:
        seen.stages.add(Stage.QUEUED)


def _note_at_prefill(seen: Seen, worker: str, status: pb.RequestStatus) -> None:
    if status.attempt < seen.attempt:
        return
    seen.prefill_worker = worker
    if status.stage == pb.REQUEST_STAGE_QUEUED:
        seen.stages.add(Stage.WAITING)
    elif status.stage == pb.REQUEST_STAGE_PREFILLING:
        seen.stages.add(Stage.PREFILLING)


def _note_ticket(seen: Seen, worker: str, ticket: pb.TicketStatus, *, source_waits: bool) -> None:
    if ticket.attempt < seen.attempt:
        return
    stage = _TICKET_STAGES.get(ticket.state)
    if ticket.state == pb.TICKET_STATE_COMMITTED and source_waits:
        stage = Stage.COMMITTED
    if stage is not None:
        seen.decode_worker = worker
        seen.prefill_worker = ticket.source_worker_id or seen.prefill_worker
        seen.stages.add(stage)


def _note_progress(seen: Seen, stream: Stream) -> None:
    if time.monotonic() - stream.asked_s < QUEUED_AFTER_S:
        seen.stages.discard(Stage.QUEUED)
    if seen.router_stage != pb.REQUEST_STAGE_DECODING or not stream.num_tokens:
        return
    seen.stages.add(Stage.LATE if stream.progress >= LATE_FROM else Stage.EARLY)
