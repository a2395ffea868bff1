"""The Admin service of a router: the fleet as it sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import grpc

from common.errors import IntegrityError, NotFoundError, UnavailableError
from common.net.protocol import encode_role
from common.net.status import error_from_call
from protos import admin_pb2 as pb
from protos import admin_pb2_grpc, layout_pb2
from router.answer import Answer
from router.api.explain import encode_decision
from router.choice import Choice
from router.decision_log import DecisionLog
from router.departed import DepartedWorker
from router.fleet import Fleet
from router.whereabouts import Whereabouts
from router.worker_handle import WorkerHandle
from router.worker_info import WorkerInfo

Context = grpc.aio.ServicerContext[Any, Any]

WORKER_TIMEOUT_S = 10.0


class RouterAdminServicer(admin_pb2_grpc.AdminServicer):
    """`router_status` says how the router itself is, `answers` what it is answering."""

    def __init__(
        self,
        fleet: Fleet,
        decisions: DecisionLog,
        answers: Collection[Answer],
        router_status: Callable[[], pb.RouterStatus],
    ) -> None:
        self._fleet = fleet
        self._decisions = decisions
        self._answers = answers
        self._router_status = router_status

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        refused = self._fleet.refused()
        refused_ids = {worker.worker_id for worker in refused}
        handles = [
            handle
            for handle in self._fleet.workers()
            # One that came back as another, and does not fit any more, is told once.
            if handle.attachment.connected or handle.info.worker_id not in refused_ids
        ]
        handles.sort(key=lambda handle: (handle.info.role, handle.info.worker_id))
        return pb.StatusResponse(
            workers=[*map(_status, handles), *map(_departed_status, self._fleet.departed())],
            router=self._router_status(),
            refused_workers=[
                pb.RefusedWorker(worker_id=worker.worker_id, address=worker.address or "", reason=worker.reason)
                for worker in refused
            ],
        )

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        asked = request.request_id
        decision = self._decisions.find(asked) if asked else self._decisions.last()
        if decision is None:
            what = f"request {asked!r} is not" if asked else "no request is"
            raise NotFoundError("request_id", f"{what} among the last {self._decisions.max_decisions} of this router")
        return encode_decision(decision)

    async def ResetPrefixCache(
        self, request: pb.ResetPrefixCacheRequest, context: Context
    ) -> pb.ResetPrefixCacheResponse:
        answers = await self._ask_all(
            lambda worker: worker.admin_stub.ResetPrefixCache(request, timeout=WORKER_TIMEOUT_S)
        )
        return pb.ResetPrefixCacheResponse(num_dropped_blocks=sum(answer.num_dropped_blocks for answer in answers))

    async def Drain(self, request: pb.DrainRequest, context: Context) -> pb.DrainResponse:
        worker = self._fleet.find(request.worker_id)
        if worker is None:
            known = ", ".join(sorted(handle.info.worker_id for handle in self._fleet.workers()))
            raise NotFoundError("worker_id", f"no worker {request.worker_id!r} (there are: {known or 'none'})")
        try:
            response: pb.DrainResponse = await worker.admin_stub.Drain(request, timeout=WORKER_TIMEOUT_S)
        except grpc.aio.AioRpcError as call_error:
            raise UnavailableError(f"worker {request.worker_id}: {error_from_call(call_error)}") from call_error
        return response

    async def CheckIntegrity(self, request: pb.CheckIntegrityRequest, context: Context) -> pb.CheckIntegrityResponse:
        answers = await self._ask_all(
            lambda worker: worker.admin_stub.CheckIntegrity(request, timeout=WORKER_TIMEOUT_S)
        )
        total = pb.CheckIntegrityResponse()
        for name in pb.CheckIntegrityResponse.DESCRIPTOR.fields_by_name:
            setattr(total, name, sum(getattr(answer, name) for answer in answers))
        return total

    async def ListRequests(self, request: pb.ListRequestsRequest, context: Context) -> pb.ListRequestsResponse:
        return pb.ListRequestsResponse(
            requests=[status for answer in self._answers for status in _encode_answer(answer)]
        )

    async def ListTickets(self, request: pb.ListTicketsRequest, context: Context) -> pb.ListTicketsResponse:
        return pb.ListTicketsResponse()

    async def _ask_all(self, ask: Callable[[WorkerHandle], Any]) -> list[Any]:
        async def answer_of(worker: WorkerHandle) -> Any:
            try:
                return await ask(worker)
            except grpc.aio.AioRpcError as call_error:
                message = f"worker {worker.info.worker_id}: {error_from_call(call_error)}"
                kind = IntegrityError if call_error.code() is grpc.StatusCode.INTERNAL else UnavailableError
                raise kind(message) from call_error

        return list(await asyncio.gather(*(answer_of(worker) for worker in self._fleet.workers())))


def _status(handle: WorkerHandle) -> pb.WorkerStatus:
    status = _describe(handle.info, _state(handle))
    status.reachable = handle.attachment.connected
    status.load.CopyFrom(handle.load_report)
    status.uptime_s = time.monotonic() - handle.since_s
    return status


def _departed_status(departed: DepartedWorker) -> pb.WorkerStatus:
    return _describe(departed.info, _departed_state(removed=departed.removed))


def _describe(info: WorkerInfo, state: layout_pb2.WorkerState) -> pb.WorkerStatus:
    return pb.WorkerStatus(
        worker_id=info.worker_id,
        incarnation=info.incarnation,
        role=encode_role(info.role),
        state=state,
        model=info.model,
        address=info.address,
        backend=info.backend,
    )


def _encode_answer(answer: Answer) -> Iterator[pb.RequestStatus]:
    """One status for choices that are at the same place."""
    groups: dict[Whereabouts, list[Choice]] = {}
    for choice in answer.choices:
        if not choice.finished:
            groups.setdefault(choice.whereabouts, []).append(choice)
    for whereabouts, choices in groups.items():
        yield pb.RequestStatus(
            request_id=answer.request.request_id,
            attempt=whereabouts.attempt,
            choice_indices=[choice.index for choice in choices],
            stage=f"REQUEST_STAGE_{whereabouts.stage.name}",
            prompt_tokens=len(answer.request.prompt_token_ids),
            output_tokens=max(len(choice.token_ids) for choice in choices),
            prefill_worker=whereabouts.prefill_worker or "",
            decode_worker=whereabouts.decode_worker or "",
        )


def _state(handle: WorkerHandle) -> layout_pb2.WorkerState:
    if handle.attachment.left or handle.attachment.lost:
        return _departed_state(removed=handle.attachment.left)
    if handle.info.draining:
        return layout_pb2.WORKER_STATE_DRAINING
    if handle.account.doubtful or not handle.answers:
        return layout_pb2.WORKER_STATE_NOT_READY
    return layout_pb2.WORKER_STATE_READY


def _departed_state(*, removed: bool) -> layout_pb2.WorkerState:
    return layout_pb2.WORKER_STATE_REMOVED if removed else layout_pb2.WORKER_STATE_DEAD
