"""The router's one stream to one worker: submits and cancels go up, tokens and load come down.

Owned by the event loop. Reconnects with backoff until it is closed; whenever the stream breaks, every
attempt on that worker is told that it is lost.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

import grpc

from common.config import Role
from common.errors import IncompatibleWorkerError
from common.net.handshake import HandshakeLog
from common.net.leg_codec import encode_leg
from common.net.protocol import PROTOCOL_VERSION
from common.net.sampling_codec import decode_finish_reason, decode_logprobs
from common.net.silence import Silence, speaking_interval_s
from common.request import Leg, LegKey, RequestId
from protos import layout_pb2, transfer_pb2, worker_pb2, worker_pb2_grpc
from router.inbox import EndReason, Inbox, LegEnded, LegStarted, TokensArrived, WorkerDrains, WorkerLost
from router.kept_choice import KeptChoice
from router.worker_info import WorkerInfo

logger = logging.getLogger(__name__)

RECONNECT_DELAY_S = 0.2
MAX_RECONNECT_DELAY_S = 2.0
DESCRIBE_TIMEOUT_S = 2.0

_END_REASONS = {
    worker_pb2.LEG_END_REASON_HANDED_OVER: EndReason.HANDED_OVER,
    worker_pb2.LEG_END_REASON_TRANSFER_FAILED: EndReason.TRANSFER_FAILED,
    worker_pb2.LEG_END_REASON_PREEMPTED: EndReason.PREEMPTED,
    worker_pb2.LEG_END_REASON_REJECTED: EndReason.REJECTED,
    worker_pb2.LEG_END_REASON_FAILED: EndReason.FAILED,
    worker_pb2.LEG_END_REASON_CANCELLED: EndReason.CANCELLED,
    worker_pb2.LEG_END_REASON_KEPT: EndReason.KEPT,
}


class AddressTakenError(Exception):
    """Another worker answers where this one was."""


class Attachment:
    """`on_hello` gets the registration when the stream comes up and whenever it changes, `on_load` each report,
    `on_doubt` whether the worker has been silent for too long to be given anything new; silent for its lease, it is
    lost.

    `on_hello` may raise IncompatibleWorkerError: then the stream is closed.
    """

    def __init__(
        self,
        info: WorkerInfo,
        channel: grpc.aio.Channel,
        router_id: str,
        *,
        on_hello: Callable[[worker_pb2.WorkerRegistration], None],
        on_load: Callable[[worker_pb2.LoadReport], None],
        on_lost: Callable[[], None],
        on_doubt: Callable[[bool], None],
    ) -> None:
        self._worker_id = info.worker_id
        self._router_id = router_id
        self._on_hello, self._on_load, self._on_lost, self._on_doubt = on_hello, on_load, on_lost, on_doubt
        stub_type = worker_pb2_grpc.PrefillWorkerStub if info.role is Role.PREFILL else worker_pb2_grpc.DecodeWorkerStub
        self._attach = stub_type(channel).Attach
        self._describe = worker_pb2_grpc.RegistrationStub(channel).Describe
        self._handshakes = HandshakeLog(logger, f"worker {info.worker_id} at {info.address}")
        self._outgoing: asyncio.Queue[worker_pb2.AttachRequest] = asyncio.Queue()
        self._inboxes: dict[LegKey, Inbox] = {}
        self.connected = False
        self._draining = False
        self._lost_s: float | None = None  # monotonic

    def connected_within(self, seconds: float) -> bool:
        """Whether the stream is up, or broke so lately, and unannounced, that the worker may come back as it was."""
        return self.connected or (self._lost_s is not None and time.monotonic() - self._lost_s < seconds)

    @property
    def left(self) -> bool:
        """Whether the stream ended after the worker had said that it drains."""
        return not self.connected and self._draining

    @property
    def lost(self) -> bool:
        """Whether the stream broke without a word of the worker's."""
        return not self.connected and self._lost_s is not None

    def open(self, inbox: Inbox) -> None:
        """From now on the attempt's messages go to its inbox."""
        self._inboxes[inbox.key] = inbox
        if self._draining:
            inbox.put(WorkerDrains(worker_id=self._worker_id))
        if not self.connected:
            inbox.put(WorkerLost(worker_id=self._worker_id))

    def close(self, inbox: Inbox) -> None:
        self._inboxes.pop(inbox.key, None)

    def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None:
        self._outgoing.put_nowait(
            worker_pb2.AttachRequest(submit=worker_pb2.Submit(leg=encode_leg(leg), push_target=target))
        )

    def cancel(self, request_id: RequestId, attempt: int, choice_indices: tuple[int, ...] = ()) -> None:
        """Idempotent; no choice named means all. A broken stream has cancelled everything already."""
        if self.connected:
            cancel = worker_pb2.Cancel(request_id=request_id, attempt=attempt, choice_indices=choice_indices)
            self._outgoing.put_nowait(worker_pb2.AttachRequest(cancel=cancel))

    def keep(self, request_id: RequestId, attempt: int, choice_index: int) -> None:
        """Asks for a choice's KV to be kept for a move. What the worker can't keep goes on there."""
        if self.connected:
            keep = worker_pb2.Keep(request_id=request_id, attempt=attempt, choice_index=choice_index)
            self._outgoing.put_nowait(worker_pb2.AttachRequest(keep=keep))

    def move(self, kept: KeptChoice, attempt: int, target: transfer_pb2.PushTarget) -> None:
        """Has what was kept sent on, as a new attempt."""
        move = worker_pb2.Move(
            request_id=kept.request_id,
            kept_attempt=kept.attempt,
            choice_index=kept.choice_index,
            attempt=attempt,
            push_target=target,
        )
        self._outgoing.put_nowait(worker_pb2.AttachRequest(move=move))

    async def run(self) -> None:
        """Until cancelled."""
        delay_s = RECONNECT_DELAY_S
        while True:
            try:
                await self._run_stream()
                delay_s = RECONNECT_DELAY_S
            except grpc.aio.AioRpcError as error:
                self._handshakes.failed(error)
            except IncompatibleWorkerError as error:
                logger.debug("stream to %s: %s", self._worker_id, error)  # the fleet has told it
            except AddressTakenError as error:
                logger.warning("%s", error)
            except Exception:
                # A bug of ours, or a worker of another version: it costs this stream, not the worker for good.
                logger.exception("the stream to worker %s broke", self._worker_id)
            finally:
                self._lose()
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, MAX_RECONNECT_DELAY_S)

    async def _run_stream(self) -> None:
        who = await self._describe(worker_pb2.DescribeRequest(), timeout=DESCRIBE_TIMEOUT_S)
        if who.worker_id != self._worker_id:
            # Attaching would end the stream that this router may have to that worker.
            raise AddressTakenError(f"worker {who.worker_id} is where worker {self._worker_id} was")
        call = self._attach()
        try:
            # A worker of the version before knows no newer one: to it this router speaks its own.
            version = min(PROTOCOL_VERSION, who.protocol_version)
            hello = worker_pb2.AttachHello(router_id=self._router_id, protocol_version=version)
            await call.write(worker_pb2.AttachRequest(hello=hello))
            first = await call.read()
            if first is grpc.aio.EOF or first.WhichOneof("kind") != "hello":
                return
            self._take_hello(first.hello)
            self._outgoing = asyncio.Queue()
            self.connected = True
            silence = None if not first.hello.lease_ms else Silence(first.hello.lease_ms / 1000)
            reading = asyncio.create_task(self._read_all(call, silence))
            tasks = [reading, asyncio.create_task(self._write_all(call))]
            if silence is not None:
                tasks.append(asyncio.create_task(self._watch(silence)))
            try:
                await asyncio.wait((reading, *tasks[2:]), return_when=asyncio.FIRST_COMPLETED)
                if reading.done():
                    reading.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            call.cancel()

    def _take_hello(self, hello: worker_pb2.WorkerRegistration) -> None:
        self._handshakes.succeeded()
        self._on_hello(hello)
        self._draining = hello.state == layout_pb2.WORKER_STATE_DRAINING
        if self._draining:
            for inbox in self._inboxes.values():
                inbox.put(WorkerDrains(worker_id=self._worker_id))

    async def _write_all(
        self, call: grpc.aio.StreamStreamCall[worker_pb2.AttachRequest, worker_pb2.AttachResponse]
    ) -> None:
        while True:
            message = await self._outgoing.get()
            try:
                await call.write(message)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                return  # the reader sees the stream's end and tells everyone

    async def _read_all(
        self,
        call: grpc.aio.StreamStreamCall[worker_pb2.AttachRequest, worker_pb2.AttachResponse],
        silence: Silence | None,
    ) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:
            assert isinstance(message, worker_pb2.AttachResponse)
            if silence is not None:
                silence.hear()
            if message.WhichOneof("kind") == "hello":
                self._take_hello(message.hello)
            else:
                self._dispatch(message.step)

    async def _watch(self, silence: Silence) -> None:
        """Says something now and then, and notices when the worker does not: returns when it is lost."""
        doubtful = False
        next_word_s = time.monotonic()
        while not silence.is_lost:
            if time.monotonic() >= next_word_s:
                next_word_s = time.monotonic() + speaking_interval_s(silence.lease_s)
                self._outgoing.put_nowait(worker_pb2.AttachRequest(heartbeat=worker_pb2.Heartbeat()))
            if silence.is_doubtful is not doubtful:
                doubtful = not doubtful
                self._on_doubt(doubtful)
            await asyncio.sleep(silence.look_interval_s)
        logger.warning("worker %s was silent for %g s", self._worker_id, silence.lease_s)

    def _dispatch(self, step: worker_pb2.StepOutput) -> None:
        for output in step.outputs:
            # A bare pair finds what a LegKey does, and is one for each token.
            inbox = self._inboxes.get((output.request_id, output.attempt))  # type: ignore[call-overload]
            if inbox is not None:
                inbox.put(self._decode_output(output))
        for end in step.ends:
            inbox = self._inboxes.get(LegKey(RequestId(end.request_id), end.attempt))
            if inbox is not None:
                inbox.put(self._decode_end(end))
        if step.HasField("load"):
            self._on_load(step.load)

    def _decode_output(self, output: worker_pb2.ChoiceOutput) -> TokensArrived:
        start = None
        if output.HasField("start"):
            start = LegStarted(
                num_cached_tokens=output.start.cached_tokens,
                queue_s=output.start.queue_ms / 1000,
                prefill_s=output.start.prefill_ms / 1000,
                prompt_logprobs=decode_logprobs(output.start.prompt_logprobs),
            )
        return TokensArrived(
            worker_id=self._worker_id,
            choice_index=output.choice_index,
            first_index=output.first_index,
            token_ids=tuple(output.token_ids),
            logprobs=decode_logprobs(output.logprobs) if output.logprobs else (),
            finish_reason=decode_finish_reason(output.finish_reason),
            stop_token_id=output.stop_token_id if output.HasField("stop_token_id") else None,
            start=start,
        )

    def _decode_end(self, end: worker_pb2.LegEnd) -> LegEnded:
        return LegEnded(
            worker_id=self._worker_id,
            choice_indices=tuple(end.choice_indices),
            reason=_END_REASONS.get(end.reason, EndReason.FAILED),
            status=end.status,
            message=end.message,
            num_sent_bytes=end.sent_bytes,
            num_sent_blocks=end.sent_blocks,
            transfer_s=end.transfer_ms / 1000,
            push_s=end.push_ms / 1000,
            num_output_tokens=end.num_output_tokens,
        )

    def _lose(self) -> None:
        if self.connected:
            self.connected = False
            self._lost_s = None if self._draining else time.monotonic()
            if self._draining:
                logger.info("worker %s left", self._worker_id)
            else:
                logger.warning("lost the stream to worker %s", self._worker_id)
            self._on_lost()
        for inbox in self._inboxes.values():
            inbox.put(WorkerLost(worker_id=self._worker_id))
