"""The answers' JSON beyond what the openai package checks."""

from __future__ import annotations

import asyncio
import json
import math

import httpx

from common.request import FinishReason
from tests.support.scripted_generator import ScriptedGenerator

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]


def events_of(response: httpx.Response) -> list[dict]:
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = response.text.strip().split("\n\n")
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def test_completion_logprobs_have_the_older_shape(calling):
    async with calling() as client:
        body = {"prompt": "x", "logprobs": 2}
        whole = (await client.post(COMPLETIONS, json=body)).json()["choices"][0]["logprobs"]
        streamed = events_of(await client.post(COMPLETIONS, json={**body, "stream": True}))
    assert whole["token_logprobs"] == [-0.5] * 3 and len(whole["tokens"]) == 3
    assert whole["tokens"] == ["}", "~", "bytes:\\xa1"] and whole["text_offset"] == [0, 1, 2]
    assert whole["top_logprobs"][0] == {"bytes:\\xa2": -0.5, "bytes:\\xa3": -1.5, "}": -0.5}
    parts = [event["choices"][0]["logprobs"] for event in streamed]
    assert {key: [item for part in parts for item in part[key]] for key in whole} == whole


async def test_no_infinity_in_json(calling):
    async with calling(ScriptedGenerator(logprob=-math.inf)) as client:
        completion = await client.post(COMPLETIONS, json={"prompt": "x", "logprobs": 1, "prompt_logprobs": 1})
        chat = await client.post(CHAT, json={"messages": USER, "logprobs": True, "top_logprobs": 1})
    assert completion.json()["choices"][0]["logprobs"]["token_logprobs"] == [-9999.0] * 3
    assert chat.json()["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] == -9999.0


async def test_prompt_logprobs(calling):
    async with calling() as client:
        completion = (await client.post(COMPLETIONS, json={"prompt": "x", "prompt_logprobs": 1})).json()
        chat = (await client.post(CHAT, json={"messages": USER, "prompt_logprobs": 1})).json()
    first, second = completion["choices"][0]["prompt_logprobs"]
    assert first is None and set(second) == {"98", "100"}
    assert second["98"]["logprob"] == -0.5 and second["98"]["rank"] == 1 and "decoded_token" in second["98"]
    assert chat["prompt_logprobs"] == [first, second]


async def test_echo_puts_the_prompt_first(calling):
    async with calling() as client:
        body = {"prompt": ["Say: ", "Now: "], "echo": True}
        choices = (await client.post(COMPLETIONS, json=body)).json()["choices"]
        assert [choice["text"] for choice in choices] == ["Say: Hello world", "Now: Hello world"]
        texts = ["", ""]
        for event in events_of(await client.post(COMPLETIONS, json={**body, "stream": True})):
            texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
        assert texts == ["Say: Hello world", "Now: Hello world"]
        ids = (await client.post(COMPLETIONS, json={"prompt": [76, 77], "echo": True})).json()
        assert ids["choices"][0]["text"].endswith("Hello world") and len(ids["choices"][0]["text"]) == 13


async def test_stop_reasons(calling):
    body = {"prompt": "x", "stop": "!", "stop_token_ids": [42]}

    async def reason(**script: object) -> object:
        async with calling(ScriptedGenerator(**script)) as client:
            whole = (await client.post(COMPLETIONS, json=body)).json()["choices"][0]["stop_reason"]
            streamed = events_of(await client.post(COMPLETIONS, json={**body, "stream": True}))
            assert streamed[-1]["choices"][0]["stop_reason"] == whole
            return whole

    assert await reason(stop_string="!") == "!"
    assert await reason(stop_token_id=42) == 42
    assert await reason(stop_token_id=2) is None  # EOS is no stop token of the caller's
    assert await reason(finish=FinishReason.LENGTH) is None


async def test_held_back_text_makes_no_chunk_unless_tokens_are_told(calling):
    async with calling(ScriptedGenerator(["", "", "ab", ""])) as client:
        plain = events_of(await client.post(COMPLETIONS, json={"prompt": "x", "stream": True}))
        told = events_of(await client.post(COMPLETIONS, json={"prompt": "x", "stream": True, "return_token_ids": True}))
    assert [event["choices"][0]["text"] for event in plain] == ["ab", ""]
    assert [event["choices"][0]["token_ids"] for event in told] == [[97], [98], [99], [100]]
    assert [event["choices"][0].get("prompt_token_ids") for event in told] == [[5, 98], None, None, None]


async def test_a_streamed_chat_tells_token_ids(calling):
    async with calling() as client:
        body = {"messages": USER, "stream": True, "return_token_ids": True, "logprobs": True}
        first, *rest = events_of(await client.post(CHAT, json=body))
    assert first["prompt_token_ids"] == [5, 98] and first["choices"][0]["delta"]["role"] == "assistant"
    assert [event["choices"][0]["token_ids"] for event in rest] == [[97], [98], [99]]
    assert all(len(event["choices"][0]["logprobs"]["content"]) == 1 for event in rest)


async def test_a_long_answer_is_whole(calling):
    async with calling(ScriptedGenerator(["x"] * 2000)) as client:
        answer = (await client.post(COMPLETIONS, json={"prompt": "x"})).json()
    assert answer["choices"][0]["text"] == "x" * 2000


async def test_the_first_piece_comes_before_the_last(serving):
    generator = ScriptedGenerator(["a", "b"], pause_s=0.15)
    async with serving(generator) as url, httpx.AsyncClient() as client:
        body = {"prompt": "x", "stream": True}
        async with client.stream("POST", url + COMPLETIONS, json=body) as response:
            assert "b" not in json.loads((await anext(response.aiter_lines())).removeprefix("data: "))["choices"][0]
            assert generator.num_running == 1


async def test_a_client_that_reads_nothing_is_cancelled(serving):
    generator = ScriptedGenerator(["x" * 100_000] * 10_000)
    async with serving(generator, stall_timeout_s=0.2) as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        body = b'{"prompt": "x", "stream": true}'
        head = f"POST {COMPLETIONS} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        writer.write(head + body)
        await reader.readexactly(100)
        async with asyncio.timeout(5):
            await generator.until(num_running=1)
            while generator.num_running:
                await asyncio.sleep(0.02)
        writer.close()
    assert generator.num_closed == 1
