"""One attempt at some choices of a request: reserve, submit, follow, and leave nothing behind.

Owned by the event loop. However `run` is left, both workers are told to stop what is not finished.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

import grpc

from common.config import Role
from common.errors import OverloadedError, SlipstreamError
from common.net.leg_codec import encode_leg
from common.net.protocol import MOVE_VERSION
from common.net.status import error_from_call, error_from_status
from common.request import Leg, WorkerId
from protos import transfer_pb2, worker_pb2
from router.answer import Answer
from router.background import Background
from router.fleet import Fleet
from router.inbox import EndReason, Inbox, LegEnded, Message, TokensArrived, WorkerDrains, WorkerLost
from router.kept_choice import KeptChoice
from router.planning.books import Booking
from router.planning.late_map import map_after_s
from router.planning.plan import Plan, PlanKind
from router.whereabouts import Stage, Whereabouts
from router.worker_handle import WorkerHandle

logger = logging.getLogger(__name__)

CONTROL_TIMEOUT_S = 5.0
HAND_OVER_FIGURES_S = 1.0


class RefusedError(Exception):
    """These workers had no room. Others may have."""

    def __init__(self, *worker_ids: WorkerId) -> None:
        super().__init__(*worker_ids)
        self.worker_ids = frozenset(worker_ids)


class AttemptLostError(Exception):
    """A worker, or the transfer between two, failed: plan again."""

    def __init__(self, worker_id: WorkerId, why: str) -> None:
        super().__init__(why)
        self.worker_id = worker_id


class LegAttempt:
    """Ends when each choice is finished or was handed back; raises RefusedError, AttemptLostError or what failed."""

    def __init__(
        self,
        leg: Leg,
        plan: Plan,
        booking: Booking,
        answer: Answer,
        fleet: Fleet,
        background: Background,
        *,
        may_move: bool,
        moved: KeptChoice | None = None,
    ) -> None:
        self._leg = leg
        self._may_move = may_move
        self._moved = moved
        # Choices that were stopped with their KV: whoever runs the attempt has them moved, or cancelled.
        self.kept: dict[int, KeptChoice] = {}
        self._asked_to_keep: set[int] = set()
        self._to_keep: dict[int, LegEnded] = {}
        self._draining = False
        self._plan = plan
        self._booking = booking
        self._answer = answer
        self._fleet = fleet
        self._background = background
        self._inbox = Inbox(leg.key)
        # Choices that the caller still waits for, and those that a worker may still compute.
        self._open = set(leg.choice_indices)
        self._unended = set(leg.choice_indices)
        self._prefill: WorkerHandle | None = None
        self._decode: WorkerHandle | None = None
        self._reservation: worker_pb2.ReserveResponse | None = None
        # Tokens that came before those in front of them: the two workers' streams keep no common order.
        self._early: dict[int, list[TokensArrived]] = {}
        self._awaits_hand_over = plan.kind in (PlanKind.SPLIT, PlanKind.MOVE)
        self._computed = self._committed = False
        self._stage: Stage | None = None

    async def run(self, on_submitted: Callable[[], None]) -> None:
        """`on_submitted` is called when decode has room for the attempt, and the first worker has it in its queue."""
        try:
            source = self._find(
                self._plan.computing.candidate.worker_id if self._moved is None else self._moved.worker_id
            )
            if self._plan.kind is PlanKind.LOCAL:
                self._decode = source
            else:
                self._prefill = source
            if self._plan.kind in (PlanKind.SPLIT, PlanKind.MOVE):
                self._reservation = await self._reserve(source)
            self._submit(source)
            on_submitted()
            await self._follow()
        finally:
            self._leave()

    async def _reserve(self, prefill: WorkerHandle) -> worker_pb2.ReserveResponse:
        request = worker_pb2.ReserveRequest(
            router_id=self._fleet.router_id,
            leg=encode_leg(self._leg),
            source_worker_id=prefill.info.worker_id,
            reason=transfer_pb2.TRANSFER_REASON_HANDOVER if self._moved is None else transfer_pb2.TRANSFER_REASON_DRAIN,
            map_now=self._map_after_s is None,
            map_after_ms=round(1000 * (self._map_after_s or 0.0)),
        )
        for ranked in self._plan.decode:
            handle = self._find(ranked.candidate.worker_id)
            worker_id = handle.info.worker_id
            self._booking.ask_decode(worker_id)
            # Tokens may come before the answer to Reserve is read here: the inbox is open first.
            handle.attachment.open(self._inbox)
            self._decode = handle
            self._enter(Stage.RESERVING)
            try:
                response = await self._reserved(handle, request)
            except grpc.aio.AioRpcError as call_error:
                handle.attachment.close(self._inbox)
                self._decode = None
                error = error_from_call(call_error)
                if isinstance(error, OverloadedError):
                    self._booking.decode_refused(worker_id)
                    continue
                # Its answer may be on its way: then a reservation is there that would live as long as the stream.
                handle.attachment.cancel(self._leg.request_id, self._leg.attempt)
                if call_error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise AttemptLostError(handle.info.worker_id, f"Reserve: {error}") from error
                raise error from call_error
            if response.HasField("load"):
                handle.take_load(response.load)
            self._booking.decode_granted(worker_id)
            self._answer.decode_cached_blocks = response.cached_blocks
            return response
        raise RefusedError(*(one.candidate.worker_id for one in self._plan.decode))

    async def _reserved(self, handle: WorkerHandle, request: worker_pb2.ReserveRequest) -> worker_pb2.ReserveResponse:
        """Raises AttemptLostError once the worker is lost: one that hangs would hold the call for all its time."""
        worker_id = handle.info.worker_id
        call = handle.decode_stub.Reserve(request, timeout=CONTROL_TIMEOUT_S)
        answering: asyncio.Future[worker_pb2.ReserveResponse] = asyncio.ensure_future(call)
        losing: asyncio.Future[None] = asyncio.create_task(self._inbox.wait_lost(worker_id))
        try:
            await asyncio.wait((answering, losing), return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            raise AttemptLostError(worker_id, f"worker {worker_id} is gone")
        finally:
            losing.cancel()
            answering.cancel()

    @property
    def _map_after_s(self) -> float | None:
        """When prefill is expected to want the places of its blocks; None: at once."""
        if self._moved is not None or self._prefill is None:
            return None
        return map_after_s(self._plan, self._prefill.info)

    def _find(self, worker_id: WorkerId) -> WorkerHandle:
        handle = self._fleet.find(worker_id)
        if handle is None:
            raise AttemptLostError(worker_id, f"worker {worker_id} has left")
        return handle

    def _submit(self, worker: WorkerHandle) -> None:
        target = None
        if self._reservation is not None:
            target = transfer_pb2.PushTarget(
                ticket=self._reservation.ticket,
                sink_ranks=self._reservation.sink_ranks,
                map=self._reservation.map if self._reservation.HasField("map") else None,
            )
        worker.attachment.open(self._inbox)
        if self._moved is not None:
            assert target is not None
            worker.attachment.move(self._moved, self._leg.attempt, target)
        else:
            worker.attachment.submit(self._leg, target)
            self._answer.prefill_worker = self._prefill.info.worker_id if self._prefill else None
        self._booking.submitted()
        self._enter(Stage.PREFILLING if self._moved is None else Stage.HANDING_OVER)
        self._answer.decode_worker = self._decode.info.worker_id if self._decode else None

    async def _follow(self) -> None:
        await self._inbox.follow(self._take, until=lambda: not self._open)
        # The answer is there; what the hand-over moved is told a moment later, or not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_FIGURES_S):
                await self._inbox.follow(self._take, until=lambda: not self._awaits_hand_over)

    def _take(self, message: Message) -> None:
        match message:
            case TokensArrived() as tokens:
                self._order_tokens(tokens)
            case LegEnded() as end:
                self._take_end(end)
            case WorkerDrains(worker_id=worker_id):
                self._draining = self._draining or self._is_decode(worker_id)
            case WorkerLost(worker_id=worker_id):
                self._take_loss(worker_id)

    def _order_tokens(self, tokens: TokensArrived) -> None:
        choice = self._answer.choices[tokens.choice_index]
        if tokens.first_index > len(choice.token_ids) and not choice.finished:
            self._early.setdefault(tokens.choice_index, []).append(tokens)
            return
        self._take_tokens(tokens)
        if self._early:
            # Each worker's own are in order: only prefill's can have been missing.
            for message in self._early.pop(tokens.choice_index, ()):
                self._take_tokens(message)

    def _take_tokens(self, tokens: TokensArrived) -> None:
        now_s = time.monotonic()
        if not self._computed:
            self._computed = True
            self._booking.computed(now_s)
        self._answer.deliver(tokens, now_s)
        index = tokens.choice_index
        if self._is_decode(tokens.worker_id):
            if not self._committed:
                self._commit()
            if self._draining:
                self._keep_if_draining(index)
        stage = Stage.DECODING if self._committed else Stage.HANDING_OVER
        if stage is not self._stage:
            self._enter(stage)
        if self._to_keep and (kept := self._to_keep.pop(index, None)) is not None:
            self._take_kept(index, kept)
        if tokens.finish_reason is not None:
            self._unended.discard(index)
        if not self._answer.choices[index].finished or index not in self._open:
            return
        self._open.remove(index)
        if tokens.finish_reason is None and self._open:
            self._cancel((index,))  # a stop string: only the router knows it
        if not self._open and not self._committed:
            self._awaits_hand_over = False  # the first tokens ended it all: nothing is left to hand over

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        whereabouts = Whereabouts(
            stage=stage,
            attempt=self._leg.attempt,
            prefill_worker=self._prefill.info.worker_id if self._prefill else None,
            decode_worker=self._decode.info.worker_id if self._decode else None,
        )
        for index in self._open:
            self._answer.choices[index].whereabouts = whereabouts

    def _is_decode(self, worker_id: WorkerId) -> bool:
        return self._decode is not None and worker_id == self._decode.info.worker_id

    def _keep_if_draining(self, choice_index: int) -> None:
        """Has a choice that decodes on a draining worker kept for a move, once, when another may take it."""
        assert self._decode is not None
        info = self._decode.info
        if not self._may_move or choice_index in self._asked_to_keep:
            return
        if info.protocol_version < MOVE_VERSION or not self._fleet.usable(Role.DECODE, frozenset({info.worker_id})):
            return
        self._asked_to_keep.add(choice_index)
        self._decode.attachment.keep(self._leg.request_id, self._leg.attempt, choice_index)

    def _take_kept(self, choice_index: int, end: LegEnded) -> None:
        """A choice was stopped with its KV. Its last tokens may be on their way by another stream."""
        choice = self._answer.choices[choice_index]
        if choice_index not in self._open:
            return  # a stop string has ended it: `_leave` cancels it
        if len(choice.token_ids) < end.num_output_tokens:
            self._to_keep[choice_index] = end
            return
        self._open.remove(choice_index)
        self._unended.discard(choice_index)
        self.kept[choice_index] = KeptChoice(
            worker_id=end.worker_id,
            request_id=self._leg.request_id,
            attempt=self._leg.attempt,
            choice_index=choice_index,
        )

    def _note_cached_blocks(self, end: LegEnded) -> None:
        """What decode held when its blocks were mapped late: Reserve could only foretell it."""
        if self._decode is not None and self._reservation is not None and not self._reservation.HasField("map"):
            num_tokens = len(self._leg.prompt_token_ids) + len(self._leg.output_token_ids)
            num_blocks = -(-num_tokens // self._decode.info.block_size)
            self._answer.decode_cached_blocks = num_blocks - end.num_sent_blocks

    def _commit(self) -> None:
        self._committed = True
        self._booking.committed(time.monotonic())

    def _take_end(self, end: LegEnded) -> None:
        choices = end.choice_indices or self._leg.choice_indices
        match end.reason:
            case EndReason.KEPT:
                for index in choices:
                    self._take_kept(index, end)
            case EndReason.HANDED_OVER:
                if self._moved is None:
                    self._answer.note_hand_over(end)
                    self._note_cached_blocks(end)
                if self._decode is not None:
                    self._decode.account.note_transfer(end.num_sent_bytes, end.push_s)
                self._commit()
                self._enter(Stage.DECODING)
                self._awaits_hand_over = False
            case EndReason.PREEMPTED:
                self._answer.preemptions += len(choices)
                self._open.difference_update(choices)
                self._unended.difference_update(choices)
            case EndReason.REJECTED if end.status == OverloadedError.status:
                raise RefusedError(end.worker_id)
            case EndReason.TRANSFER_FAILED if not self._open:
                self._awaits_hand_over = False  # the commit arrived, if not its answer
            case EndReason.TRANSFER_FAILED if end.status == OverloadedError.status:
                # Nobody failed: decode had no blocks for what it had granted. Planned anew, as when handed back.
                self._awaits_hand_over = False
                self._open.difference_update(choices)
                self._unended.difference_update(choices)
            case EndReason.TRANSFER_FAILED:
                sink = self._decode.info.worker_id if self._decode else end.worker_id
                raise AttemptLostError(sink, f"transfer: {end.message}")
            case EndReason.CANCELLED:
                self._unended.difference_update(choices)
                if self._open.intersection(choices):
                    raise AttemptLostError(end.worker_id, f"worker {end.worker_id} cancelled it")
            case _:
                raise error_from_status(end.status or SlipstreamError.status, end.message)

    def _take_loss(self, worker_id: WorkerId) -> None:
        if not any(
            worker is not None and worker.info.worker_id == worker_id for worker in (self._prefill, self._decode)
        ):
            return  # a candidate that was passed over
        spent = self._committed and self._prefill is not None and worker_id == self._prefill.info.worker_id
        if spent or not self._open:
            self._awaits_hand_over = False  # what it had to give is given
            return
        raise AttemptLostError(worker_id, f"worker {worker_id} is gone")

    def _leave(self) -> None:
        self._booking.close()
        if self._reservation is not None and self._decode is not None and not self._committed:
            end = self._abort if self._open else self._release
            self._background.start(end(self._decode, self._reservation.ticket.ticket_id))
        if self._unended:
            # Cancelling all would take what was kept, too.
            self._cancel(tuple(self._unended) if self.kept else ())
        for worker in (self._prefill, self._decode):
            if worker is not None:
                worker.attachment.close(self._inbox)

    def _cancel(self, choice_indices: tuple[int, ...]) -> None:
        for worker in (self._prefill, self._decode):
            if worker is not None:
                worker.attachment.cancel(self._leg.request_id, self._leg.attempt, choice_indices)

    async def _abort(self, decode: WorkerHandle, ticket_id: str) -> None:
        request = worker_pb2.AbortRequest(ticket_id=ticket_id, reason="the router gave the attempt up")
        await decode.decode_stub.Abort(request, timeout=CONTROL_TIMEOUT_S)

    async def _release(self, decode: WorkerHandle, ticket_id: str) -> None:
        await decode.decode_stub.Release(worker_pb2.ReleaseRequest(ticket_id=ticket_id), timeout=CONTROL_TIMEOUT_S)
