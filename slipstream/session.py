"""Many answers over one stream to a router: a message brings all that came in the same moment."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import grpc

from common.errors import DeadlineExceededError, RequestCancelledError, UnavailableError
from protos import inference_pb2 as pb
from slipstream.connection import error_of, error_of_status
from slipstream.router_link import RouterLink

# Larger ones have a stream of their own: others would wait until they were sent, and one that is too large for the
# router ends its stream.
MAX_REQUEST_BYTES = 2**20


class NoSessionError(Exception):
    """The router is of a version without sessions."""


class SessionAnswer:
    """One answer, read as a call of its own would be. Owned by whoever asked."""

    def __init__(self, cancel: Callable[[], None], timeout_s: float) -> None:
        self._cancel = cancel
        self._responses: deque[pb.GenerateResponse] = deque()
        self._ending: BaseException | None = None  # None with `_ended`: the answer is whole
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self._time_out, timeout_s)

    async def read(self) -> Any:
        """The next response, or grpc.aio.EOF. Raises SlipstreamError, NoSessionError."""
        while not self._responses:
            if self._ending is not None:
                raise self._ending
            if self._ended:
                return grpc.aio.EOF
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._responses.popleft()

    def cancel(self) -> None:
        """Of no effect when it has ended."""
        if not self._ended:
            self.end()
            self._cancel()

    def put(self, response: pb.GenerateResponse) -> None:
        self._responses.append(response)
        self._wake()

    def end(self, error: BaseException | None = None) -> None:
        self._ended, self._ending = True, error
        self._timer.cancel()
        self._wake()

    def _time_out(self, timeout_s: float) -> None:
        self.end(DeadlineExceededError(f"the answer did not end within {timeout_s:g} s"))
        self._cancel()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)


class Session:
    """Opens its stream with the first answer, and another one when that has ended. Belongs to one event loop."""

    def __init__(self, open_stream: Callable[[], Any], address: str) -> None:
        self._open_stream = open_stream
        self._address = address
        self._ids = count(1)
        self._stream: _Stream | None = None
        self.is_unknown = False  # to the router

    def ask(self, request: pb.GenerateRequest, timeout_s: float) -> SessionAnswer:
        if self._stream is None or self._stream.has_ended:
            self._stream = _Stream(self._open_stream(), self._address, self._note_unknown)
        return self._stream.ask(next(self._ids), request, timeout_s)

    async def close(self) -> None:
        """Ends every answer. Idempotent."""
        if self._stream is not None:
            await self._stream.close()

    def _note_unknown(self) -> None:
        self.is_unknown = True


class _Stream:
    """One Session call, and the answers that are open on it."""

    def __init__(self, call: Any, address: str, on_unknown: Callable[[], None]) -> None:
        self._call = call
        self._address = address
        self._on_unknown = on_unknown
        self._answers: dict[int, SessionAnswer] = {}
        self._outgoing: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        self._writing = asyncio.create_task(self._write_all())
        self._reading = asyncio.create_task(self._read_all())
        self.has_ended = False

    def ask(self, answer_id: int, request: pb.GenerateRequest, timeout_s: float) -> SessionAnswer:
        answer = SessionAnswer(lambda: self._cancel(answer_id), timeout_s)
        self._answers[answer_id] = answer
        timeout_ms = max(0, round(timeout_s * 1000))
        self._outgoing.put_nowait(pb.SessionRequest(id=answer_id, generate=request, timeout_ms=timeout_ms))
        return answer

    async def close(self) -> None:
        self._end(RequestCancelledError("the client was closed"))
        self._reading.cancel()
        self._writing.cancel()
        await asyncio.gather(self._reading, self._writing, return_exceptions=True)
        self._call.cancel()

    def _cancel(self, answer_id: int) -> None:
        if self._answers.pop(answer_id, None) is not None and not self.has_ended:
            self._outgoing.put_nowait(pb.SessionRequest(id=answer_id, cancel=pb.CancelAnswer()))

    async def _write_all(self) -> None:
        try:
            # A router without sessions says so now; a write that met its word would hide it.
            await self._call.initial_metadata()
            while not self._call.done():
                await self._call.write(await self._outgoing.get())
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # who reads learns why

    async def _read_all(self) -> None:
        try:
            while (message := await self._call.read()) is not grpc.aio.EOF:
                for part in message.parts:
                    self._take(part)
            self._end(None)
        except grpc.aio.AioRpcError as error:
            self._end(error)
        finally:
            self._writing.cancel()

    def _take(self, part: pb.AnswerPart) -> None:
        answer = self._answers.get(part.id)
        if answer is None:
            return  # cancelled
        if part.WhichOneof("kind") == "response":
            answer.put(part.response)
            return
        del self._answers[part.id]
        end = part.end
        answer.end(
            None
            if end.status == "OK"
            else error_of_status(
                end.status,
                end.message,
                self._address,
                field=end.field or None,
                retry_after_s=end.retry_after_ms / 1000 if end.retry_after_ms else None,
            )
        )

    def _end(self, error: Exception | None) -> None:
        """All that are open. An error of gRPC's is put into words for each, for each raises its own."""
        self.has_ended = True
        answers, self._answers = self._answers, {}
        is_unknown = isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNIMPLEMENTED
        if is_unknown:
            self._on_unknown()
        for answer in answers.values():
            if is_unknown:
                answer.end(NoSessionError())
            elif isinstance(error, grpc.aio.AioRpcError):
                answer.end(error_of(error, self._address))
            else:
                answer.end(error or UnavailableError(f"{self._address}: the router ends its sessions"))


class SessionLink(RouterLink[grpc.aio.Channel]):
    """With a session for answers, beside the calls."""

    def __init__(self, channel: grpc.aio.Channel, address: str, metadata: Sequence[tuple[str, str]]) -> None:
        super().__init__(channel)
        self.session = Session(lambda: self.inference.Session(metadata=metadata), address)

    async def close(self) -> None:
        await self.session.close()
        await self.channel.close()
