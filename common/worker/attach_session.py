"""One router's Attach stream at a worker: hello, then submits and cancels up, steps down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from common.errors import EngineError, IncompatibleWorkerError, InvalidRequestError, SlipstreamError
from common.net.leg_codec import decode_leg
from common.net.protocol import HEARTBEAT_VERSION, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION, speaks_with_us
from common.net.silence import Silence
from common.request import Leg, LegKey, RequestId
from common.worker.attach_hub import AttachHub, RouterStream
from protos import transfer_pb2, worker_pb2

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class LegTaker(Protocol):
    """What a worker does with what a router asks. Called on the event loop; must not wait."""

    def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None:
        """Takes a leg. Raises SlipstreamError when it is refused at once; a later refusal is a LegEnd."""
        ...

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...]) -> None: ...

    def keep(self, key: LegKey, choice_index: int) -> None:
        """Stops a choice that decodes and keeps its KV; one that does not is left alone."""
        ...

    def move(self, move: worker_pb2.Move) -> None:
        """Sends what was kept. Raises SlipstreamError when it is not there."""
        ...

    def router_gone(self, router_id: str, orphans: list[LegKey]) -> None: ...


class AttachSession:
    """Runs one stream to its end."""

    def __init__(
        self,
        hub: AttachHub,
        taker: LegTaker,
        registration: Callable[[], worker_pb2.WorkerRegistration],
        *,
        lease_s: float,
    ) -> None:
        self._lease_s = lease_s
        self._hub = hub
        self._taker = taker
        self._registration = registration

    async def run(self, context: Context) -> None:
        """Raises InvalidRequestError or IncompatibleWorkerError when the hello is wrong, DecodeError for no message."""
        first = await context.read()
        if first is grpc.aio.EOF or first.WhichOneof("kind") != "hello":
            raise InvalidRequestError("hello", "must be the stream's first message")
        if not speaks_with_us(first.hello.protocol_version):
            raise IncompatibleWorkerError(
                f"this worker speaks protocol {PROTOCOL_VERSION}, from {OLDEST_PROTOCOL_VERSION} on, the router "
                f"{first.hello.protocol_version}"
            )
        older = self._hub.stream_of(first.hello.router_id)
        if older is not None:
            # Half open, which only its router knows: what it asked over it, it has given up.
            self._end(older)
        stream = self._hub.attach(first.hello.router_id)
        logger.info("router %s attached", stream.router_id)
        silence = Silence(self._lease_s)
        tasks = [
            asyncio.ensure_future(part)
            for part in (
                self._read(stream, context, silence),
                self._write(stream, context),
                stream.ended.wait(),
                *([_lost(silence)] if first.hello.protocol_version >= HEARTBEAT_VERSION else []),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            self._end(stream)
            await asyncio.gather(*tasks, return_exceptions=True)
        reading = tasks[0]
        if not reading.cancelled():
            reading.result()

    def _end(self, stream: RouterStream) -> None:
        orphans = self._hub.detach(stream)
        if orphans is not None:
            self._taker.router_gone(stream.router_id, orphans)
            logger.info("router %s detached, %d legs cancelled", stream.router_id, len(orphans))

    async def _write(self, stream: RouterStream, context: Context) -> None:
        await context.write(worker_pb2.AttachResponse(hello=self._registration()))
        while True:
            await context.write(await stream.outgoing.get())

    async def _read(self, stream: RouterStream, context: Context, silence: Silence) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            silence.hear()
            match message.WhichOneof("kind"):
                case "submit":
                    self._submit(stream, message.submit)
                case "cancel":
                    cancel = message.cancel
                    key = LegKey(RequestId(cancel.request_id), cancel.attempt)
                    self._taker.cancel(key, tuple(cancel.choice_indices))
                case "keep":
                    keep = message.keep
                    self._taker.keep(LegKey(RequestId(keep.request_id), keep.attempt), keep.choice_index)
                case "move":
                    self._move(stream, message.move)
                case "heartbeat":
                    pass
                case _:
                    logger.warning("router %s sent an unknown message", stream.router_id)

    def _submit(self, stream: RouterStream, submit: worker_pb2.Submit) -> None:
        key = LegKey(RequestId(submit.leg.request_id), submit.leg.attempt)
        try:
            leg = decode_leg(submit.leg)
            self._hub.own(leg.key, leg.choice_indices, stream.router_id)
            self._taker.submit(leg, submit.push_target if submit.HasField("push_target") else None)
        except SlipstreamError as error:
            self._refuse(stream, key, error)
        except Exception as error:
            # A leg that nobody foresaw must not cost its router the stream, and all other legs with it.
            logger.exception("request %s can't be taken", key.request_id)
            self._taker.cancel(key, ())
            self._refuse(stream, key, EngineError(f"{type(error).__name__}: {error}"))

    def _refuse(self, stream: RouterStream, key: LegKey, error: SlipstreamError) -> None:
        stream.num_refused += 1
        self._hub.refuse(stream, key, rejection(key, error))

    def _move(self, stream: RouterStream, move: worker_pb2.Move) -> None:
        key = LegKey(RequestId(move.request_id), move.attempt)
        self._hub.own(key, (move.choice_index,), stream.router_id)
        try:
            self._taker.move(move)
        except SlipstreamError as error:
            self._hub.send_end(key, rejection(key, error, worker_pb2.LEG_END_REASON_TRANSFER_FAILED))


async def _lost(silence: Silence) -> None:
    """Returns when the router has been silent for the lease."""
    await silence.wait_lost()
    logger.warning("a router was silent for %g s: its stream is ended", silence.lease_s)


def rejection(
    key: LegKey,
    error: SlipstreamError,
    reason: worker_pb2.LegEndReason = worker_pb2.LEG_END_REASON_REJECTED,
) -> worker_pb2.LegEnd:
    """A leg that was not taken, and why."""
    return worker_pb2.LegEnd(
        request_id=key.request_id,
        attempt=key.attempt,
        reason=reason,
        status=error.status.value,
        message=str(error),
    )
