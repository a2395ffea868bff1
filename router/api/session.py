"""Many answers on one stream, each as it would be on a stream of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc

from common.errors import InvalidRequestError, RequestCancelledError, SlipstreamError, Status
from common.net.patience import Patience
from common.net.status import FIELD_KEY, RETRY_AFTER_MS_KEY, details_of, message_of
from protos import inference_pb2 as pb
from router.answer import MAX_UNREAD_S

logger = logging.getLogger(__name__)

# Beyond this, parts go each in a message of its own: together they might be more than a caller takes.
MAX_JOINT_BYTES = 2**20

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Responses = AsyncGenerator[pb.GenerateResponse, None]


@dataclass(slots=True)
class _Batch:
    """Parts that go out together."""

    parts: list[pb.AnswerPart]
    written: asyncio.Event = field(default_factory=asyncio.Event)


class AnswerSession:
    """One Session call. `answer` brings a request's responses; its second argument are the seconds that it may take.

    An answer has one part at most that is not written yet: what comes meanwhile is merged where it comes from.
    """

    def __init__(
        self, context: Context, answer: Callable[[pb.GenerateRequest, float | None], Responses], closing: asyncio.Event
    ) -> None:
        self._context = context
        self._answer = answer
        self._closing = closing
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._batch = _Batch([])
        self._has_parts = asyncio.Event()
        self._writing = False
        self._changed = asyncio.Event()  # an answer has ended, or parts are written

    async def run(self, requests: AsyncIterator[pb.SessionRequest]) -> None:
        """Until the caller says no more, or this router closes, and every answer has ended."""
        reading, writing = asyncio.create_task(self._read_all(requests)), asyncio.create_task(self._write_all())
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait({reading, writing, closing}, return_when=asyncio.FIRST_COMPLETED)
            while self._is_open(reading, writing):
                self._changed.clear()
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait({reading, writing, changed}, return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
        finally:
            tasks = [reading, writing, closing, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in (reading, writing):
            if not task.cancelled():
                task.result()

    def _is_open(self, reading: asyncio.Task[None], writing: asyncio.Task[None]) -> bool:
        if writing.done() or (reading.done() and reading.exception() is not None):
            return False
        return bool(self._tasks or self._batch.parts or self._writing)

    async def _read_all(self, requests: AsyncIterator[pb.SessionRequest]) -> None:
        async for request in requests:
            match request.WhichOneof("kind"):
                case "generate":
                    if request.id in self._tasks:
                        raise InvalidRequestError("id", f"{request.id} is that of another answer of this stream")
                    self._start(request)
                case "cancel":
                    if (task := self._tasks.get(request.id)) is not None:
                        task.cancel()
                case _:
                    raise InvalidRequestError("kind", "is missing: set one of generate, cancel")

    def _start(self, request: pb.SessionRequest) -> None:
        task = self._tasks[request.id] = asyncio.create_task(self._run(request))

        # A task that is cancelled before it begins runs nothing of its own.
        def forget(_: asyncio.Task[None]) -> None:
            del self._tasks[request.id]
            self._changed.set()

        task.add_done_callback(forget)

    async def _write_all(self) -> None:
        patience = Patience(MAX_UNREAD_S)
        try:
            while True:
                await self._has_parts.wait()
                self._has_parts.clear()
                batch, self._batch = self._batch, _Batch([])
                self._writing = True
                for message in _messages(batch.parts):
                    try:
                        with patience:
                            await self._context.write(message)
                    except TimeoutError:
                        raise RequestCancelledError(f"the caller has read nothing for {MAX_UNREAD_S:.0f} s") from None
                self._writing = False
                batch.written.set()
                self._changed.set()
        finally:
            patience.close()

    async def _run(self, request: pb.SessionRequest) -> None:
        timeout_s = request.timeout_ms / 1000 if request.HasField("timeout_ms") else None
        written: asyncio.Event | None = None
        end = pb.AnswerEnd(status="OK")
        try:
            async with aclosing(self._answer(request.generate, timeout_s)) as responses:
                async for response in responses:
                    if written is not None and not written.is_set():
                        await written.wait()
                    written = self._put(pb.AnswerPart(id=request.id, response=response))
        except SlipstreamError as error:
            if error.status is Status.INTERNAL:
                logger.error("a request failed", exc_info=error)
            end = _end_of(error)
        except Exception as error:
            logger.error("a request failed", exc_info=error)
            end = pb.AnswerEnd(status="INTERNAL", message=f"internal error: {type(error).__name__}: {error}")
        self._put(pb.AnswerPart(id=request.id, end=end))

    def _put(self, part: pb.AnswerPart) -> asyncio.Event:
        """Set when it is written."""
        self._batch.parts.append(part)
        self._has_parts.set()
        return self._batch.written


def _messages(parts: list[pb.AnswerPart]) -> list[pb.SessionResponse]:
    joint = pb.SessionResponse(parts=parts)
    if len(parts) == 1 or joint.ByteSize() <= MAX_JOINT_BYTES:
        return [joint]
    return [pb.SessionResponse(parts=[part]) for part in parts]


def _end_of(error: SlipstreamError) -> pb.AnswerEnd:
    details = dict(details_of(error))
    return pb.AnswerEnd(
        status=error.status.value,
        message=message_of(error),
        field=details.get(FIELD_KEY, ""),
        retry_after_ms=int(details.get(RETRY_AFTER_MS_KEY, 0)),
    )
