"""Many answers on one stream, over a real gRPC server and a scripted core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from common.errors import InvalidRequestError, OverloadedError
from common.net.interceptor import ErrorInterceptor
from protos import inference_pb2 as pb
from protos import inference_pb2_grpc
from router.api.inference import InferenceServicer
from router.api.session import MAX_JOINT_BYTES, MAX_UNTOLD, _in_messages
from tests.support.scripted_generator import ScriptedGenerator

Call = Any


@asynccontextmanager
async def open_session(generator: ScriptedGenerator, closing: asyncio.Event | None = None) -> AsyncIterator[Call]:
    server = grpc.aio.server(interceptors=[ErrorInterceptor()])
    inference_pb2_grpc.add_InferenceServicer_to_server(InferenceServicer(generator, closing=closing), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield inference_pb2_grpc.InferenceStub(channel).Session()
    finally:
        await server.stop(None)


class BlockedContext:
    """Of a caller that reads nothing until it is `released`."""

    def __init__(self) -> None:
        self.writing, self.released = asyncio.Event(), asyncio.Event()
        self.messages: list[pb.SessionResponse] = []

    async def send_initial_metadata(self, metadata: object) -> None: ...

    async def write(self, message: pb.SessionResponse) -> None:
        self.writing.set()
        await self.released.wait()
        self.messages.append(message)


async def ask(call: Call, *answer_ids: int, model: str = "") -> None:
    for answer_id in answer_ids:
        await call.write(pb.SessionRequest(id=answer_id, generate=pb.GenerateRequest(text="x", model=model)))


async def read_ends(call: Call, count: int) -> tuple[dict[int, str], dict[int, pb.AnswerEnd], int]:
    """Texts and ends by id, and how many messages it took."""
    texts: dict[int, str] = {}
    ends: dict[int, pb.AnswerEnd] = {}
    num_messages = 0
    while len(ends) < count:
        message = await call.read()
        assert message is not grpc.aio.EOF, "the stream ended before its answers"
        num_messages += 1
        for part in message.parts:
            assert part.id not in ends, "something came after an answer's end"
            if part.WhichOneof("kind") == "end":
                ends[part.id] = part.end
            else:
                texts[part.id] = texts.get(part.id, "") + "".join(one.text for one in part.response.choices)
    return texts, ends, num_messages


async def test_answers_share_a_stream_and_its_messages() -> None:
    async with open_session(ScriptedGenerator(pause_s=0.05)) as call:
        await ask(call, *range(1, 33))
        texts, ends, num_messages = await read_ends(call, 32)
    assert texts == dict.fromkeys(range(1, 33), "Hello world")
    assert {end.status for end in ends.values()} == {"OK"}
    assert num_messages < 80  # of 160 parts


async def test_an_answer_fails_alone_and_says_what_a_call_would() -> None:
    async with open_session(ScriptedGenerator(pause_s=0.02)) as call:
        await ask(call, 1)
        await ask(call, 2, model="another")
        texts, ends, _ = await read_ends(call, 2)
    assert texts == {1: "Hello world"}
    assert ends[2].status == "NOT_FOUND" and "another" in ends[2].message


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (
            InvalidRequestError("n", "must be 1"),
            pb.AnswerEnd(status="INVALID_ARGUMENT", message="n: must be 1", field="n"),
        ),
        (
            OverloadedError("full", retry_after_s=2.5),
            pb.AnswerEnd(status="RESOURCE_EXHAUSTED", message="full", retry_after_ms=2500),
        ),
        (KeyError("bug"), pb.AnswerEnd(status="INTERNAL", message="internal error: KeyError: 'bug'")),
    ],
)
async def test_errors_keep_their_details(error: Exception, end: pb.AnswerEnd) -> None:
    async with open_session(ScriptedGenerator(fail_with=error, fail_after=1)) as call:
        await ask(call, 7)
        assert (await read_ends(call, 1))[:2] == ({7: "Hel"}, {7: end})


async def test_a_cancelled_answer_is_closed_and_says_nothing_more() -> None:
    generator = ScriptedGenerator(pause_s=0.1)
    async with open_session(generator) as call:
        await ask(call, 1, 2)
        await generator.until(num_running=2)
        await call.write(pb.SessionRequest(id=1, cancel=pb.CancelAnswer()))
        await generator.until(num_running=1, num_closed=1)
        assert (await read_ends(call, 1))[0].keys() == {2}
        await call.write(pb.SessionRequest(id=1, cancel=pb.CancelAnswer()))  # again: of no effect
        await ask(call, 1)
        assert (await read_ends(call, 1))[0] == {1: "Hello world"}


async def test_an_answer_that_is_cancelled_before_it_begins_leaves_nothing() -> None:
    async def asked() -> AsyncIterator[pb.SessionRequest]:  # both at once, without a turn of the loop between
        yield pb.SessionRequest(id=1, generate=pb.GenerateRequest(text="x"))
        yield pb.SessionRequest(id=1, cancel=pb.CancelAnswer())

    generator = ScriptedGenerator()
    servicer: Any = InferenceServicer(generator)
    async with asyncio.timeout(5):
        await servicer.Session(asked(), BlockedContext())
    assert generator.commands == []


async def test_an_answer_may_be_cancelled_while_it_waits_for_the_caller_to_read() -> None:
    context = BlockedContext()
    generator = ScriptedGenerator()
    requests: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()

    async def asked() -> AsyncIterator[pb.SessionRequest]:
        while True:
            yield await requests.get()

    servicer: Any = InferenceServicer(generator)
    session = asyncio.create_task(servicer.Session(asked(), context))
    for answer_id in (1, 2):
        requests.put_nowait(pb.SessionRequest(id=answer_id, generate=pb.GenerateRequest(text="x")))
    await generator.until(num_running=2)
    await context.writing.wait()
    requests.put_nowait(pb.SessionRequest(id=1, cancel=pb.CancelAnswer()))
    await generator.until(num_running=1, num_closed=1)
    context.released.set()
    await generator.until(num_running=0, num_closed=1)
    session.cancel()
    await asyncio.gather(session, return_exceptions=True)
    assert {part.id for message in context.messages[1:] for part in message.parts} == {2}


@pytest.mark.parametrize("refused", [True, False])
async def test_of_a_caller_who_reads_nothing_only_so_much_is_read(refused: bool) -> None:
    context = BlockedContext()
    num_asked = 0

    async def asked() -> AsyncIterator[pb.SessionRequest]:
        nonlocal num_asked
        for num_asked in range(1, 3 * MAX_UNTOLD + 1):
            yield pb.SessionRequest(id=num_asked, generate=pb.GenerateRequest(text="" if refused else "x"))
            await asyncio.sleep(0)

    servicer: Any = InferenceServicer(ScriptedGenerator())
    async with asyncio.timeout(20):
        session = asyncio.create_task(servicer.Session(asked(), context))
        await context.writing.wait()
        known = -1
        while known != num_asked:
            known = num_asked
            await asyncio.sleep(0.2)
        assert MAX_UNTOLD <= num_asked <= MAX_UNTOLD + 100
        context.released.set()
        await session
    ended = [part.id for message in context.messages for part in message.parts if part.WhichOneof("kind") == "end"]
    assert sorted(ended) == list(range(1, 3 * MAX_UNTOLD + 1))


async def test_nothing_of_a_cancelled_answer_follows_in_a_message_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.api.session.MAX_JOINT_BYTES", 1)  # each part alone
    context = BlockedContext()
    generator = ScriptedGenerator(pause_s=0.05)
    cancel = asyncio.Event()

    async def asked() -> AsyncIterator[pb.SessionRequest]:
        for answer_id in (1, 2, 3):
            yield pb.SessionRequest(id=answer_id, generate=pb.GenerateRequest(text="x"))
        await cancel.wait()
        yield pb.SessionRequest(id=3, cancel=pb.CancelAnswer())

    servicer: Any = InferenceServicer(generator)
    async with asyncio.timeout(5):
        session = asyncio.create_task(servicer.Session(asked(), context))
        await context.writing.wait()  # of the first part; the others' are built
        cancel.set()
        await generator.until(num_running=2, num_closed=1)
        context.released.set()
        await session
    assert {part.id for message in context.messages[1:] for part in message.parts} <= {1, 2}


async def test_the_streams_end_closes_what_has_not_ended() -> None:
    generator = ScriptedGenerator(pause_s=0.1)
    async with open_session(generator) as call:
        await ask(call, 1, 2, 3)
        await generator.until(num_running=3)
        call.cancel()
        await generator.until(num_running=0, num_closed=3)


async def test_who_asks_no_more_still_gets_the_rest() -> None:
    async with open_session(ScriptedGenerator(pause_s=0.05)) as call:
        await ask(call, 1, 2)
        await call.done_writing()
        assert (await read_ends(call, 2))[0] == {1: "Hello world", 2: "Hello world"}
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_a_router_that_closes_ends_sessions_when_their_answers_have_ended() -> None:
    closing = asyncio.Event()
    generator = ScriptedGenerator(pause_s=0.05)
    async with open_session(generator, closing) as call:
        await ask(call, 1)
        await generator.until(num_running=1)
        closing.set()
        assert (await read_ends(call, 1))[0] == {1: "Hello world"}
        assert await call.read() is grpc.aio.EOF


@pytest.mark.parametrize(
    ("requests", "field"),
    [
        ([pb.SessionRequest(id=1)], "kind"),
        ([pb.SessionRequest(id=1, generate=pb.GenerateRequest(text="x"))] * 2, "id"),
    ],
)
async def test_who_speaks_another_way_is_refused(requests: Sequence[pb.SessionRequest], field: str) -> None:
    generator = ScriptedGenerator(pause_s=0.2)
    async with open_session(generator) as call:
        for request in requests:
            await call.write(request)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert (await call.details()).startswith(f"{field}: ")
        await generator.until(num_running=0, num_closed=len(requests) - 1)


async def test_a_request_has_its_own_deadline() -> None:
    generator = ScriptedGenerator()
    async with open_session(generator) as call:
        request = pb.GenerateRequest(text="x", deadline_ms=9000)
        await call.write(pb.SessionRequest(id=1, generate=request, timeout_ms=4000))
        await call.write(pb.SessionRequest(id=2, generate=request))
        await read_ends(call, 2)
    assert [command.deadline_s for command in generator.commands] == [4.0, 9.0]


def test_large_parts_go_alone() -> None:
    def part(answer_id: int, size: int) -> pb.AnswerPart:
        choices = [pb.ChoiceDelta(text="x" * size)]
        return pb.AnswerPart(id=answer_id, response=pb.GenerateResponse(choices=choices))

    small, large = [part(1, 10), part(2, 10)], [part(1, MAX_JOINT_BYTES), part(2, 10)]

    def lengths(parts: list[pb.AnswerPart]) -> list[int]:
        return [len(message.parts) for message in _in_messages(pb.SessionResponse(parts=parts))]

    assert lengths(small) == [2]
    assert lengths(large) == [1, 1]
    assert lengths([]) == []
