"""Runs the generations of one HTTP request and sends their answer; stops them when the client goes away."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from common.net.patience import Patience
from router.access.tenant import Tenant
from router.generation import GenerateCommand, GenerateEvent, Generator, Usage, events_of
from router.http.answer_shape import AnswerShape
from router.http.collected_answer import CollectedAnswer, total_usage
from router.http.http_error import HttpError, http_error

logger = logging.getLogger(__name__)

# Shaping and encoding more tokens than this takes over a millisecond and goes to a thread.
INLINE_TOKENS = 500

_Take = Callable[[int, GenerateEvent], Awaitable[None]]  # prompt index, event

_SSE_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # proxies of nginx's kind would collect the pieces
}


class ClientStalledError(Exception):
    """The client has read nothing for too long; nobody is left to tell."""


class HttpAnswer:
    """An ASGI response, for `tenant`. Whatever way it ends, every iterator of the generator has been closed."""

    def __init__(
        self, generator: Generator, shape: AnswerShape, *, tenant: Tenant | None, stall_timeout_s: float
    ) -> None:
        self._tenant = tenant
        self._generator = generator
        self._shape = shape
        self._patience = Patience(stall_timeout_s)
        self._started = False
        self._sending = asyncio.Lock()  # several prompts stream into one response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = asyncio.create_task(self._answer(send))
        watching = asyncio.create_task(_client_gone(receive))
        try:
            await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also when this task itself is cancelled: neither may outlive it.
            answering.cancel()
            watching.cancel()
            await asyncio.gather(answering, watching, return_exceptions=True)
            self._patience.close()
        if not answering.cancelled():
            answering.result()

    async def _answer(self, send: Send) -> None:
        try:
            if self._shape.streaming.stream:
                await self._stream(send)
            else:
                await self._send_whole(send)
        except (ClientStalledError, OSError):
            logger.info("%s: the client reads no more", self._shape.id)
        except Exception as error:
            await self._send_error(send, http_error(_only_error(error)))

    async def _send_whole(self, send: Send) -> None:
        commands = self._commands()
        answers = [CollectedAnswer(command.sampling.n) for command in commands]

        async def collect(prompt_index: int, event: GenerateEvent) -> None:
            answers[prompt_index].add(event)

        await self._generate_all(commands, collect)
        if sum(answer.num_tokens for answer in answers) <= INLINE_TOKENS:
            body = _encode(self._shape.whole(answers))
        else:
            body = await asyncio.to_thread(lambda: _encode(self._shape.whole(answers)))
        await self._send_json(send, 200, body, {})

    async def _stream(self, send: Send) -> None:
        commands = self._commands()
        usages: list[Usage | None] = [None] * len(commands)

        async def forward(prompt_index: int, event: GenerateEvent) -> None:
            if event.usage is not None:
                usages[prompt_index] = event.usage
            async with self._sending:
                chunks = self._shape.chunks(prompt_index, event)
                await self._send_events(send, [_encode(chunk) for chunk in chunks])

        await self._generate_all(commands, forward)
        last = [b"[DONE]"]
        if self._shape.streaming.include_usage:
            last.insert(0, _encode(self._shape.usage_chunk(total_usage(usages))))
        await self._send_events(send, last)
        await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})

    def _commands(self) -> list[GenerateCommand]:
        return [dataclasses.replace(command, tenant=self._tenant) for command in self._shape.commands()]

    async def _generate_all(self, commands: Sequence[GenerateCommand], take: _Take) -> None:
        if len(commands) == 1:
            await self._generate(0, commands[0], take)
            return
        # The first that fails cancels the others.
        async with asyncio.TaskGroup() as group:
            for prompt_index, command in enumerate(commands):
                group.create_task(self._generate(prompt_index, command, take))

    async def _generate(self, prompt_index: int, command: GenerateCommand, take: _Take) -> None:
        # Closed at once when this is cancelled or `take` fails; a garbage collector would take its time.
        async with aclosing(events_of(self._generator, command)) as events:
            async for event in events:
                await take(prompt_index, event)

    async def _send_events(self, send: Send, events: list[bytes]) -> None:
        """Server-sent events in one write. The response starts with the first: an error before it has a status."""
        if not events:
            return
        if not self._started:
            self._started = True
            await self._send(send, self._start(200, _SSE_HEADERS))
        body = b"".join(b"data: " + event + b"\n\n" for event in events)
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": True})

    async def _send_error(self, send: Send, error: HttpError) -> None:
        try:
            if not self._started:
                await self._send_json(send, error.status, error.encode(), error.headers)
                return
            await self._send_events(send, [error.encode()])
            await self._send(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except (ClientStalledError, OSError):
            logger.info("%s: the client went away before it read the error", self._shape.id)

    async def _send_json(self, send: Send, status: int, body: bytes, headers: dict[str, str]) -> None:
        self._started = True
        lengths = {"content-type": "application/json", "content-length": str(len(body))}
        await self._send(send, self._start(status, {**lengths, **headers}))
        await self._send(send, {"type": "http.response.body", "body": body, "more_body": False})

    def _start(self, status: int, headers: dict[str, str]) -> Message:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        pairs.append((b"x-request-id", self._shape.id.encode()))
        return {"type": "http.response.start", "status": status, "headers": pairs}

    async def _send(self, send: Send, message: Message) -> None:
        # The server waits here while the client's window is full.
        try:
            with self._patience:
                await send(message)
        except TimeoutError:
            raise ClientStalledError from None


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _only_error(error: Exception) -> Exception:
    """A task group wraps the error of the prompt that failed; the first one is told."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error


def _encode(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
