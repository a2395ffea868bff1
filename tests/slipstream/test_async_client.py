from __future__ import annotations

import asyncio
import socket

import grpc
import pytest

from common.errors import DeadlineExceededError, InvalidRequestError, RequestCancelledError
from slipstream import AsyncClient
from slipstream.session import MAX_REQUEST_BYTES
from tests.support.scripted_router import Script, ScriptedRouter


def unused_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


async def test_generate_and_stream(router: ScriptedRouter) -> None:
    async with AsyncClient(router.address) as client:
        assert (await client.generate("x", n=2)).choices[1].text == "The sky is blue."
        assert [delta.text async for delta in client.stream("x")] == ["The ", "sky ", "is blue.", ""]


async def test_many_at_once(router: ScriptedRouter, second_router: ScriptedRouter) -> None:
    async with AsyncClient([router.address, second_router.address]) as client:
        answers = await asyncio.gather(*(client.generate(str(number)) for number in range(16)))
    assert {answer.text for answer in answers} == {"The sky is blue."}
    assert len(router.script.requests) == len(second_router.script.requests) == 8


async def test_errors_carry_their_details(router: ScriptedRouter) -> None:
    router.script = Script(
        fail_after=0,
        code=grpc.StatusCode.INVALID_ARGUMENT,
        details="n: must be from 1 to 64",
        trailers=(("slipstream-field", "n"),),
    )
    async with AsyncClient(router.address) as client:
        with pytest.raises(InvalidRequestError) as caught:
            await client.generate("x")
    assert caught.value.field == "n"


async def test_cancelling_the_task_cancels_the_request(router: ScriptedRouter) -> None:
    router.script = Script(endless=True)
    async with AsyncClient(router.address) as client:
        task = asyncio.create_task(client.generate("x"))
        assert await asyncio.to_thread(router.script.arrived.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(router.script.cancelled.wait, 5)


async def test_the_timeout_holds(router: ScriptedRouter) -> None:
    router.script = Script(endless=True)
    async with AsyncClient(router.address, timeout_s=0.3) as client:
        with pytest.raises(DeadlineExceededError):
            await client.generate("x")


async def test_a_router_without_sessions_is_called_without(router: ScriptedRouter) -> None:
    router.script = Script(knows_sessions=False)
    async with AsyncClient(router.address) as client:
        answers = await asyncio.gather(*(client.generate(str(number)) for number in range(4)))
        answers.append(await client.generate("x"))
    assert {answer.text for answer in answers} == {"The sky is blue."}


@pytest.mark.parametrize("knows_sessions", [True, False])
async def test_a_large_prompt_is_answered_too(router: ScriptedRouter, knows_sessions: bool) -> None:
    router.script = Script(knows_sessions=knows_sessions)
    async with AsyncClient(router.address) as client:
        assert (await client.generate("x" * (MAX_REQUEST_BYTES + 1))).text == "The sky is blue."


async def test_what_a_closed_client_was_asked_ends(router: ScriptedRouter) -> None:
    router.script = Script(endless=True)
    client = AsyncClient(router.address)
    task = asyncio.create_task(client.generate("x"))
    assert await asyncio.to_thread(router.script.arrived.wait, 5)
    await client.close()
    with pytest.raises(RequestCancelledError):
        await task


async def test_leaving_an_answer_early_cancels_it_alone(router: ScriptedRouter) -> None:
    router.script = left = Script(endless=True)
    async with AsyncClient(router.address) as client:
        stream = client.stream("x")
        assert (await anext(stream)).text == "The "
        router.script = Script()
        await stream.aclose()  # type: ignore[attr-defined]
        assert (await client.generate("y")).text == "The sky is blue."
        assert await asyncio.to_thread(left.cancelled.wait, 5)


async def test_a_router_that_does_not_answer_is_passed_over(router: ScriptedRouter) -> None:
    async with AsyncClient([unused_address(), router.address]) as client:
        assert (await client.generate("x")).text == (await client.generate("x")).text == "The sky is blue."


async def test_the_control_calls(router: ScriptedRouter) -> None:
    async with AsyncClient(router.address) as client:
        assert [card.id for card in await client.models()] == ["tiny"]
        assert await client.reset_prefix_cache() == 30
        assert (await client.check_integrity()).num_blocks == 100
        assert (await client.status()).workers[0].worker_id == "decode-0"


def test_a_target_that_is_no_address_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"^target: must be host:port"):
        AsyncClient("localhost")
