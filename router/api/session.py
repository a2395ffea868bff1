"""Many answers on one stream, each as it would be on a stream of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeAlias

import grpc

from common.errors import InvalidRequestError, RequestCancelledError, SlipstreamError, Status
from common.net.patience import Patience
from common.net.status import FIELD_KEY, RETRY_AFTER_MS_KEY, details_of, message_of
from protos import inference_pb2 as pb
from router.answer import MAX_UNREAD_S
from router.api.inference_codec import encode_event
from router.generation import AnswerFeed

logger = logging.getLogger(__name__)

# Beyond this, parts go each in a message of its own: together they might be more than a caller takes.
MAX_JOINT_BYTES = 2**20
# While so many answers have something that is not written, nothing more is read of the caller: who asks and asks, and
# reads nothing, would else fill this router's memory with refusals.
MAX_UNTOLD = 1024

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Begin: TypeAlias = Callable[[pb.GenerateRequest, "float | None", Callable[[], None]], AnswerFeed]


class AnswerSession:
    """One Session call. `begin` begins a request, see `Generator.begin`; its second argument are the seconds that it
    may take.

    No answer has a task here: the writer takes what all of them have, and what comes while it writes is merged where
    it comes from.
    """

    def __init__(self, context: Context, begin: Begin, closing: asyncio.Event) -> None:
        self._context = context
        self._begin = begin
        self._closing = closing
        self._feeds: dict[int, AnswerFeed] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._news: dict[int, None] = {}  # whose answers have something to take, in order
        self._refused: list[pb.AnswerPart] = []
        self._has_news = asyncio.Event()
        self._taken = asyncio.Event()  # news were
        self._silenced: set[int] = set()  # cancelled since
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
            for task in (reading, writing, closing):
                task.cancel()
            for answer_id in tuple(self._feeds):
                self._close(answer_id)
            await asyncio.gather(reading, writing, closing, *self._leaving, return_exceptions=True)
        for task in (reading, writing):
            if not task.cancelled():
                task.result()

    def _is_open(self, reading: asyncio.Task[None], writing: asyncio.Task[None]) -> bool:
        if writing.done() or (reading.done() and reading.exception() is not None):
            return False
        return bool(self._feeds or self._leaving or self._refused or self._writing)

    async def _read_all(self, requests: AsyncIterator[pb.SessionRequest]) -> None:
        async for request in requests:
            while len(self._refused) + len(self._news) >= MAX_UNTOLD:
                self._taken.clear()
                await self._taken.wait()
            match request.WhichOneof("kind"):
                case "generate":
                    if request.id in self._feeds:
                        raise InvalidRequestError("id", f"{request.id} is that of another answer of this stream")
                    self._start(request)
                case "cancel":
                    if self._close(request.id):
                        self._silenced.add(request.id)
                case _:
                    raise InvalidRequestError("kind", "is missing: set one of generate, cancel")

    def _start(self, request: pb.SessionRequest) -> None:
        answer_id = request.id
        timeout_s = request.timeout_ms / 1000 if request.HasField("timeout_ms") else None

        def note() -> None:
            self._news[answer_id] = None
            self._has_news.set()

        try:
            self._feeds[answer_id] = self._begin(request.generate, timeout_s, note)
        except Exception as error:
            # Not the error: its traceback holds the request.
            self._refused.append(pb.AnswerPart(id=answer_id, end=_end_of(error)))
            self._has_news.set()

    def _close(self, answer_id: int) -> bool:
        """Of no effect when the answer has ended. Whether it had not."""
        feed = self._feeds.pop(answer_id, None)
        if feed is None:
            return False
        self._news.pop(answer_id, None)
        feed.close()
        leaving = asyncio.create_task(feed.wait_closed())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)
        return True

    def _left(self, leaving: asyncio.Task[None]) -> None:
        self._leaving.discard(leaving)
        self._changed.set()

    async def _write_all(self) -> None:
        patience = Patience(MAX_UNREAD_S)
        try:
            while True:
                await self._has_news.wait()
                self._has_news.clear()
                self._writing = True
                for message in _in_messages(self._take_all()):
                    if all(part.id in self._silenced for part in message.parts):
                        continue
                    try:
                        with patience:
                            await self._context.write(message)
                    except TimeoutError:
                        raise RequestCancelledError(f"the caller has read nothing for {MAX_UNREAD_S:.0f} s") from None
                self._writing = False
                self._changed.set()
        finally:
            patience.close()

    def _take_all(self) -> pb.SessionResponse:
        """What there is of all answers."""
        refused, self._refused = self._refused, []
        message = pb.SessionResponse(parts=refused)
        news, self._news = self._news, {}
        self._taken.set()
        self._silenced.clear()
        for answer_id in news:
            if (feed := self._feeds.get(answer_id)) is not None:  # else it was cancelled
                self._take(message, answer_id, feed)
        return message

    def _take(self, message: pb.SessionResponse, answer_id: int, feed: AnswerFeed) -> None:
        try:
            while (event := feed.take()) is not None:
                part = message.parts.add()
                part.id = answer_id
                encode_event(part.response, feed.request_id, event)
        except Exception as error:
            message.parts.add(id=answer_id, end=_end_of(error))
            self._close(answer_id)
            return
        if feed.ended:
            message.parts.add(id=answer_id, end=pb.AnswerEnd(status="OK"))
            self._close(answer_id)


def _in_messages(joint: pb.SessionResponse) -> Iterator[pb.SessionResponse]:
    if len(joint.parts) <= 1 or joint.ByteSize() <= MAX_JOINT_BYTES:
        if joint.parts:
            yield joint
        return
    for part in joint.parts:
        yield pb.SessionResponse(parts=[part])


def _end_of(error: Exception) -> pb.AnswerEnd:
    if not isinstance(error, SlipstreamError):
        logger.error("a request failed", exc_info=error)
        return pb.AnswerEnd(status="INTERNAL", message=f"internal error: {type(error).__name__}: {error}")
    if error.status is Status.INTERNAL:
        logger.error("a request failed", exc_info=error)
    details = dict(details_of(error))
    return pb.AnswerEnd(
        status=error.status.value,
        message=message_of(error),
        field=details.get(FIELD_KEY, ""),
        retry_after_ms=int(details.get(RETRY_AFTER_MS_KEY, 0)),
    )
