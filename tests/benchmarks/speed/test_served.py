"""Load on servers: a peer's stream of events, and streams that decode while prompts arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.speed.prompts import Prompts
from benchmarks.speed.request import Request
from benchmarks.speed.served import vllm_server
from benchmarks.speed.served.interference import Interference
from benchmarks.speed.served.peer_server import PeerTarget
from benchmarks.speed.served.sse import HttpStatusError
from benchmarks.speed.served.target import StreamTarget, ask_all, timed
from benchmarks.speed.served.vllm_server import VLLM_SERVER
from tests.support.speed import FakeContender, make_request

OK = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


async def answer_of(text: str) -> tuple[float, ...]:
    """What the client reads from a server that answers `text` to anything."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text.encode())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        return (await timed(PeerTarget(VLLM_SERVER, port), make_request(), 0.0)).times_s


def event(num_tokens: int) -> str:
    data = f"data: {json.dumps({'usage': {'completion_tokens': num_tokens}})}\n\n"
    return f"{len(data):x}\r\n{data}\r\n"


async def test_tokens_of_a_peer_are_counted_by_its_usage() -> None:
    times_s = await answer_of(OK + event(1) + event(3) + event(3) + "data: [DONE]\n\n")
    assert len(times_s) == 3 and times_s[1] == times_s[2]


async def test_a_refusal_is_an_error() -> None:
    with pytest.raises(HttpStatusError, match="503"):
        await answer_of("HTTP/1.1 503 Busy\r\n\r\nno room")


def test_a_peer_gets_text_and_fixed_lengths() -> None:
    body = vllm_server.body(make_request(max_tokens=7))
    assert (body["prompt"], body["max_tokens"], body["ignore_eos"]) == ("a b c", 7, True)


class SlowTarget:
    """A token every few milliseconds, slower while a long prompt is there."""

    def __init__(self) -> None:
        self.num_long = self.num_open = self.most_open = 0

    async def stream(self, request: Request) -> AsyncGenerator[int, None]:
        self.num_open += 1
        self.most_open = max(self.most_open, self.num_open)
        try:
            if len(request.token_ids) > 32:
                self.num_long += 1
                await asyncio.sleep(0.05)
                self.num_long -= 1
            for _ in range(request.max_tokens):
                await asyncio.sleep(0.03 if self.num_long else 0.002)
                yield 1
        finally:
            self.num_open -= 1


class FakeServer(FakeContender):
    runner: asyncio.Runner
    target = SlowTarget()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[StreamTarget]:
        yield self.target


async def test_so_many_callers_ask_at_a_time() -> None:
    server = FakeServer(name="server", is_server=True)
    answers = await ask_all(server, [make_request(max_tokens=2)] * 6, 2)
    assert [len(one.times_s) for one in answers] == [2] * 6 and server.target.most_open == 2


def test_interference_is_seen_in_the_disturbed_phase(tiny_model: Path) -> None:
    workload = Interference(
        num_streams=2, stream_tokens=5, prompt_tokens=64, prompt_interval_s=0.1, start_s=0.05, phase_s=0.3
    )
    server = FakeServer(name="server", is_server=True)
    assert workload.runs_on(server) and not workload.runs_on(FakeContender(name="engine"))
    with asyncio.Runner() as server.runner:
        found = workload.measure(server, Prompts(tiny_model), 0)
    assert found["disturbed_p99_ms"] > found["quiet_p99_ms"] and found["p99_ratio"] > 1
    assert server.target.num_open == 0
