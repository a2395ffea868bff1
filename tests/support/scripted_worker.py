"""A worker that does what a test says: a real gRPC server that speaks the worker protocol, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from common.config import Role
from common.errors import OverloadedError, SlipstreamError
from common.kv.block_key import golden_key
from common.net.server import GrpcServer
from protos import layout_pb2, sampling_pb2, transfer_pb2, worker_pb2, worker_pb2_grpc

ROLES = {Role.PREFILL: layout_pb2.ROLE_PREFILL, Role.DECODE: layout_pb2.ROLE_DECODE, Role.BOTH: layout_pb2.ROLE_BOTH}
VOCAB_SIZE = 512

Script = Callable[["ScriptedWorker", worker_pb2.Submit], None]


class ScriptedWorker(
    worker_pb2_grpc.PrefillWorkerServicer,
    worker_pb2_grpc.DecodeWorkerServicer,
    worker_pb2_grpc.RegistrationServicer,
):
    """`on_submit` and `on_reserve` are the script. What the router asked is kept in lists."""

    def __init__(self, worker_id: str, role: Role, incarnation: int = 1) -> None:
        self.worker_id = worker_id
        self.role = role
        self.incarnation = incarnation
        self.model = "model"
        self.protocol_version = 1
        self.draining = False
        self.num_ranks = 1
        self.takes_streams = True
        self.block_size = 16
        self.num_attached = 0
        self.address = ""
        self.on_submit: Script = lambda worker, submit: None
        self.on_reserve: Callable[[worker_pb2.ReserveRequest], None] = lambda request: None  # may refuse
        self.num_refusals = 0
        self.reserve_hangs = False
        self.num_hanging = 0
        self.reserve_error: SlipstreamError | None = None  # raised once
        self.submits: list[worker_pb2.Submit] = []
        self.reserves: list[worker_pb2.ReserveRequest] = []
        self.cancels: list[worker_pb2.Cancel] = []
        self.on_keep: Callable[[worker_pb2.Keep], None] = lambda keep: None
        self.on_move: Callable[[worker_pb2.Move], None] = lambda move: None
        self.aborts: list[str] = []
        self.releases: list[str] = []
        self.refusals: list[worker_pb2.RefuseRequest] = []
        self._outgoing: asyncio.Queue[worker_pb2.AttachResponse | None] = asyncio.Queue()

    def tokens(
        self, leg: worker_pb2.Leg, first_index: int, *token_ids: int, choice: int = 0, finish: bool = False
    ) -> None:
        output = worker_pb2.ChoiceOutput(
            request_id=leg.request_id,
            attempt=leg.attempt,
            choice_index=choice,
            first_index=first_index,
            token_ids=token_ids,
            finish_reason=sampling_pb2.FINISH_REASON_LENGTH if finish else sampling_pb2.FINISH_REASON_UNSPECIFIED,
        )
        self._send(worker_pb2.StepOutput(outputs=[output]))

    def end(self, leg: worker_pb2.Leg, reason: worker_pb2.LegEndReason, **fields: Any) -> None:
        end = worker_pb2.LegEnd(request_id=leg.request_id, attempt=leg.attempt, reason=reason, **fields)
        self._send(worker_pb2.StepOutput(ends=[end]))

    def report_load(self, **fields: int) -> None:
        load = worker_pb2.LoadReport(num_blocks=100, num_free_blocks=100, max_num_seqs=8, **fields)
        self._send(worker_pb2.StepOutput(load=load))

    def drain(self) -> None:
        """Tells the router that this worker is stopping."""
        self.draining = True
        self._send_hello()

    def drop_stream(self) -> None:
        """Ends the router's stream, as a worker's death does."""
        self._outgoing.put_nowait(None)

    def registration(self) -> worker_pb2.WorkerRegistration:
        group = layout_pb2.KVCacheGroup(block_size=self.block_size, bytes_per_block=4096)
        return worker_pb2.WorkerRegistration(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            role=ROLES[self.role],
            state=layout_pb2.WORKER_STATE_DRAINING if self.draining else layout_pb2.WORKER_STATE_READY,
            protocol_version=self.protocol_version,
            model=self.model,
            max_model_len=1024,
            vocab_size=VOCAB_SIZE,
            layout=layout_pb2.KVCacheSpec(groups=[group]),
            layout_fingerprint=bytes(16),
            golden_key=golden_key(),
            key_root=bytes(16),
            ranks=[layout_pb2.RankEndpoint(rank=rank, address=self.address) for rank in range(self.num_ranks)],
            index_stride=64,
        )

    async def Describe(self, request: object, context: object) -> worker_pb2.WorkerRegistration:
        return self.registration()

    async def Refuse(self, request: worker_pb2.RefuseRequest, context: object) -> worker_pb2.RefuseResponse:
        self.refusals.append(request)
        return worker_pb2.RefuseResponse()

    async def Attach(self, request_iterator: object, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        await context.read()
        if not self.takes_streams:
            return
        self.num_attached += 1
        self._outgoing = asyncio.Queue()
        self._send_hello()
        reader = asyncio.create_task(self._read(context))
        try:
            while (message := await self._outgoing.get()) is not None:
                await context.write(message)
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def Reserve(self, request: worker_pb2.ReserveRequest, context: object) -> worker_pb2.ReserveResponse:
        if self.reserve_hangs:
            self.num_hanging += 1
            await asyncio.Event().wait()
        if self.reserve_error is not None:
            error, self.reserve_error = self.reserve_error, None
            raise error
        if self.num_refusals:
            self.num_refusals -= 1
            raise OverloadedError("no room")
        self.on_reserve(request)
        self.reserves.append(request)
        ticket = transfer_pb2.Ticket(ticket_id=f"{self.worker_id}-{len(self.reserves)}")
        return worker_pb2.ReserveResponse(ticket=ticket, map=transfer_pb2.BlockMap())

    async def Abort(self, request: worker_pb2.AbortRequest, context: object) -> worker_pb2.AbortResponse:
        self.aborts.append(request.ticket_id)
        return worker_pb2.AbortResponse()

    async def Release(self, request: worker_pb2.ReleaseRequest, context: object) -> worker_pb2.ReleaseResponse:
        self.releases.append(request.ticket_id)
        return worker_pb2.ReleaseResponse()

    async def _read(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.HasField("submit"):
                self.submits.append(message.submit)
                self.on_submit(self, message.submit)
            elif message.HasField("cancel"):
                self.cancels.append(message.cancel)
            elif message.HasField("keep"):
                self.on_keep(message.keep)
            elif message.HasField("move"):
                self.on_move(message.move)

    def _send_hello(self) -> None:
        self._outgoing.put_nowait(worker_pb2.AttachResponse(hello=self.registration()))
        self.report_load()

    def _send(self, step: worker_pb2.StepOutput) -> None:
        self._outgoing.put_nowait(worker_pb2.AttachResponse(step=step))


@asynccontextmanager
async def scripted_worker(
    worker_id: str, role: Role, *, incarnation: int = 1, port: int = 0
) -> AsyncIterator[ScriptedWorker]:
    worker = ScriptedWorker(worker_id, role, incarnation)
    server = GrpcServer()
    worker.address = f"127.0.0.1:{server.bind('127.0.0.1', port)}"
    if role is Role.PREFILL:
        worker_pb2_grpc.add_PrefillWorkerServicer_to_server(worker, server.server)
    else:
        worker_pb2_grpc.add_DecodeWorkerServicer_to_server(worker, server.server)
    worker_pb2_grpc.add_RegistrationServicer_to_server(worker, server.server)
    await server.start([])
    try:
        yield worker
    finally:
        await server.stop(0)
