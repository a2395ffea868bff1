"""The real openai package against a real server."""

from __future__ import annotations

import asyncio

import openai
import pytest

from common.errors import OverloadedError
from common.request import FinishReason
from router.generation import ChatPrompt, TextPrompt, TokenPrompt
from tests.support.scripted_generator import ScriptedGenerator

MESSAGES = [{"role": "user", "content": "hi"}]


def client_of(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


async def test_a_completion(serving):
    generator = ScriptedGenerator()
    async with serving(generator) as url, client_of(url) as client:
        answer = await client.completions.create(model="tiny", prompt="Say hello", seed=-1, stop=["x", "y"])
    assert answer.object == "text_completion" and answer.model == "tiny" and answer.id.startswith("cmpl-")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("Hello world", "stop")
    assert answer.usage.prompt_tokens == 7 and answer.usage.completion_tokens == 3 and answer.usage.total_tokens == 10
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    (command,) = generator.commands
    assert command.prompt == TextPrompt(text="Say hello") and command.request_id == answer.id
    assert command.sampling.max_tokens == 16 and command.sampling.seed == 2**64 - 1
    assert command.sampling.stop == ("x", "y")


async def test_a_streamed_completion_of_several_prompts(serving):
    async with serving(ScriptedGenerator(pause_s=0.001)) as url, client_of(url) as client:
        stream = await client.completions.create(
            model="tiny", prompt=["a", "b"], n=2, stream=True, stream_options={"include_usage": True}
        )
        texts, finishes, usage = [""] * 4, {}, None
        async for chunk in stream:
            usage = chunk.usage or usage
            for choice in chunk.choices:
                assert choice.index not in finishes
                texts[choice.index] += choice.text
                if choice.finish_reason:
                    finishes[choice.index] = choice.finish_reason
    assert texts == ["Hello world"] * 4 and finishes == dict.fromkeys(range(4), "stop")
    assert (usage.prompt_tokens, usage.completion_tokens) == (14, 12)


async def test_choices_are_numbered_prompt_by_prompt(serving):
    generator = ScriptedGenerator()
    async with serving(generator) as url, client_of(url) as client:
        answer = await client.completions.create(
            model="", prompt=[[1, 2], [3]], n=2, extra_body={"return_token_ids": True}
        )
    assert answer.model == "tiny"
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    assert answer.choices[3].token_ids == [97, 98, 99] and answer.choices[3].prompt_token_ids == [5, 98]
    assert [command.prompt for command in generator.commands] == [
        TokenPrompt(token_ids=(1, 2)),
        TokenPrompt(token_ids=(3,)),
    ]
    assert len({command.request_id for command in generator.commands}) == 2


async def test_a_chat_completion(serving):
    generator = ScriptedGenerator(finish=FinishReason.LENGTH)
    async with serving(generator) as url, client_of(url) as client:
        answer = await client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
            n=2,
            logprobs=True,
            top_logprobs=2,
            max_completion_tokens=9,
            extra_body={"chat_template_kwargs": {"enable_thinking": False}, "return_token_ids": True, "top_k": -1},
        )
    assert answer.object == "chat.completion" and len(answer.choices) == 2
    choice = answer.choices[1]
    assert (choice.message.role, choice.message.content) == ("assistant", "Hello world")
    assert choice.finish_reason == "length" and choice.token_ids == [97, 98, 99]
    assert answer.prompt_token_ids == [5, 98]
    assert len(choice.logprobs.content) == 3 and len(choice.logprobs.content[0].top_logprobs) == 2
    token = choice.logprobs.content[0]
    assert token.logprob == -0.5 and bytes(token.bytes).decode() == token.token
    (command,) = generator.commands
    assert command.prompt == ChatPrompt(
        messages=({"role": "user", "content": "a\nb"},), template_kwargs={"enable_thinking": False}
    )
    assert (command.sampling.max_tokens, command.sampling.logprobs, command.sampling.top_k) == (9, 2, 0)


async def test_a_streamed_chat_completion(serving):
    async with serving(ScriptedGenerator()) as url, client_of(url) as client:
        stream = await client.chat.completions.create(
            model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant" and chunks[0].object == "chat.completion.chunk"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "Hello world"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, None, "stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 10


async def test_the_synchronous_client(serving):
    def ask(url: str) -> tuple[str, list[str]]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            whole = client.chat.completions.create(model="tiny", messages=MESSAGES).choices[0].message.content
            with client.completions.create(model="tiny", prompt="x", stream=True) as stream:
                return whole, [chunk.choices[0].text for chunk in stream]

    async with serving(ScriptedGenerator()) as url:
        assert await asyncio.to_thread(ask, url) == ("Hello world", ["Hel", "lo", " world"])


async def test_models(serving):
    async with serving(ScriptedGenerator()) as url, client_of(url) as client:
        (model,) = (await client.models.list()).data
        assert (model.id, model.object, model.max_model_len) == ("tiny", "model", 128)
        assert (await client.models.retrieve("tiny")).created == 1_700_000_000
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("big")


async def test_errors_are_the_packages_own(serving):
    generator = ScriptedGenerator()
    async with serving(generator) as url, client_of(url) as client:
        with pytest.raises(openai.BadRequestError) as bad:
            await client.completions.create(model="tiny", prompt="x", temperature=-1)
        assert (bad.value.param, bad.value.type) == ("temperature", "invalid_request_error")
        with pytest.raises(openai.NotFoundError) as missing:
            await client.completions.create(model="big", prompt="x")
        assert missing.value.code == "model_not_found"
        generator.fail_with = OverloadedError("all queues are full", retry_after_s=2.5)
        with pytest.raises(openai.RateLimitError) as full:
            await client.completions.create(model="tiny", prompt="x", stream=True)
        assert full.value.response.headers["retry-after"] == "3"
        generator.fail_after = 1
        with pytest.raises(openai.APIError, match="all queues are full"):
            async for _ in await client.completions.create(model="tiny", prompt="x", stream=True):
                pass


async def test_closing_a_stream_stops_the_generation(serving):
    generator = ScriptedGenerator(["x"] * 1000, pause_s=0.005)
    async with serving(generator) as url, client_of(url) as client:
        stream = await client.completions.create(model="tiny", prompt=["a", "b"], stream=True)
        async for _ in stream:
            break
        assert generator.num_running == 2
        await stream.close()
        await generator.until(num_running=0, num_closed=2)


async def test_going_away_before_the_answer_stops_the_generation(serving):
    generator = ScriptedGenerator(pause_s=60.0)
    async with serving(generator) as url, client_of(url) as client:
        asking = [
            asyncio.create_task(client.chat.completions.create(model="tiny", messages=MESSAGES, stream=stream))
            for stream in (True, False)
        ]
        await generator.until(num_running=2)
        for task in asking:
            task.cancel()
        await generator.until(num_running=0, num_closed=2)
