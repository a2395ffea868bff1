"""What can't be served is answered with a status, a field and OpenAI's error shape; the service goes on."""

from __future__ import annotations

import json

import httpx
import pytest

from common.errors import (
    DeadlineExceededError,
    EngineError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    RequestCancelledError,
    TransferError,
    UnavailableError,
)
from tests.support.scripted_generator import ScriptedGenerator

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
PARALLEL = "parallel_tool_calls"
USER = [{"role": "user", "content": "hi"}]


def error_of(response: httpx.Response, status: int) -> dict[str, str | None]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return error


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": 7}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [2**40]}, "prompt"),
        ({"prompt": ["x"] * 257}, "prompt"),
        ({"model": 3}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_tokens": 10**30}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"min_tokens": 17}, "min_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"n": 0}, "n"),
        ({"n": 1000}, "n"),
        ({"seed": 2**64}, "seed"),
        ({"stop": 3}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": [1]}, "stop"),
        ({"stop_token_ids": [0.5]}, "stop_token_ids"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logit_bias": {"5": None}}, "logit_bias"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"stream": "yes"}, "stream"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 0.001}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"priority": 2**31}, "priority"),
        ({"deadline_ms": 0}, "deadline_ms"),
        ({"route": "p0"}, "route"),
        ({"route": {"exclude": "p0"}}, "route.exclude"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"include_stop_str_in_output": True}, "include_stop_str_in_output"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"length_penalty": 2}, "length_penalty"),
        ({"vllm_xargs": {"a": 1}}, "vllm_xargs"),
    ],
)
async def test_a_completion_names_the_bad_field(fields, param, calling):
    async with calling() as client:
        response = await client.post(COMPLETIONS, json={"prompt": "x", **fields})
        assert error_of(response, 400)["param"] == param
        assert (await client.post(COMPLETIONS, json={"prompt": "x"})).status_code == 200


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [*USER, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [1]}]}, "messages[0].tool_calls[0]"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"logprobs": 3}, "logprobs"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"tools": [1]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"add_generation_prompt": "no"}, "add_generation_prompt"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"verbosity": "low"}, "verbosity"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"parallel_tool_calls": False, "tools": [{"type": "function", "function": {"name": "f"}}]}, PARALLEL),
    ],
)
async def test_a_chat_names_the_bad_field(fields, param, calling):
    async with calling() as client:
        response = await client.post(CHAT, json={"messages": USER, **fields})
        assert error_of(response, 400)["param"] == param


@pytest.mark.parametrize(
    ("fields", "param", "meant"),
    [
        ({"topk": 5}, "topk", "top_k"),
        ({"topK": 5}, "topK", "top_k"),
        ({"max_token": 5}, "max_token", "max_tokens"),
        ({"max_new_tokens": 5}, "max_new_tokens", "max_tokens"),
        ({"max_completion_tokens": 5}, "max_completion_tokens", "max_tokens"),
        ({"temprature": 0}, "temprature", "temperature"),
        ({"timeout_s": 5}, "timeout_s", "deadline_ms"),
        ({"deadline": 5}, "deadline", "deadline_ms"),
        ({"stop_sequences": ["x"]}, "stop_sequences", "stop"),
        ({"route": {"decode_workers": "d"}}, "route.decode_workers", "route.decode_worker"),
        (
            {"stream": True, "stream_options": {"include_usages": True}},
            "stream_options.include_usages",
            "include_usage",
        ),
    ],
)
async def test_a_slip_of_the_pen_names_the_right_field(fields, param, meant, calling):
    async with calling() as client:
        error = error_of(await client.post(COMPLETIONS, json={"prompt": "x", **fields}), 400)
    assert error["param"] == param and f"{meant} meant?" in error["message"]


async def test_unknown_fields_are_told_by_the_service(calling, caplog):
    async with calling() as client:
        for _ in range(2):
            assert (await client.post(COMPLETIONS, json={"prompt": "x", "wibble": 1})).status_code == 200
    assert [record.args for record in caplog.records if "means nothing here" in record.msg] == [("wibble",)]


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_numbers_that_are_none_name_their_field(literal, calling):
    async with calling() as client:
        response = await client.post(COMPLETIONS, content=f'{{"prompt": "x", "temperature": {literal}}}')
        assert error_of(response, 400)["param"] == "temperature"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"prompt": "x",}',
        b'{"prompt": "\xff\xfe"}',
        b'{"prompt": "a\\ud800b"}',
        b'{"stop": ["\\uDFFF"], "prompt": "x"}',
        b'["prompt"]',
        b"null",
        b'{"prompt": ' + b"[" * 200_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "cut", "comma", "utf-8", "surrogate", "nested-surrogate", "array", "null", "deep", "digits"],
)
async def test_a_body_that_is_no_json_object(body, calling):
    generator = ScriptedGenerator()
    async with calling(generator) as client:
        error_of(await client.post(COMPLETIONS, content=body), 400)
        assert generator.commands == []
        paired = await client.post(COMPLETIONS, content=b'{"prompt": "\\ud83d\\ude42"}')
        assert paired.status_code == 200 and generator.commands[0].prompt.text == "🙂"


async def test_a_body_over_the_limit(calling):
    async with calling(max_body_bytes=1000) as client:
        for size in (1000, 3000, 100_000):
            error_of(await client.post(COMPLETIONS, json={"prompt": "x" * size}), 413)
        assert (await client.post(COMPLETIONS, json={"prompt": "x" * 900})).status_code == 200


async def test_a_body_over_the_limit_is_refused_by_a_real_server(serving):
    async with serving(ScriptedGenerator(), max_body_bytes=100_000) as url, httpx.AsyncClient() as client:
        error_of(await client.post(url + COMPLETIONS, json={"prompt": "x" * 300_000}), 413)


async def test_a_long_body_is_decoded_all_the_same(calling):
    generator = ScriptedGenerator()
    async with calling(generator) as client:
        assert (await client.post(COMPLETIONS, json={"prompt": "x" * 400_000})).status_code == 200
        bad = await client.post(COMPLETIONS, json={"prompt": ["x" * 400_000, 1]})
    assert error_of(bad, 400)["param"] == "prompt" and len(generator.commands) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("raised", "status", "code", "param"),
    [
        (InvalidRequestError("prompt", "too long"), 400, None, "prompt"),
        (ModelNotFoundError("big", ("tiny",)), 404, "model_not_found", "model"),
        (OverloadedError("full", retry_after_s=0.2), 429, "rate_limit_exceeded", None),
        (RequestCancelledError("gone"), 499, "request_cancelled", None),
        (DeadlineExceededError("late"), 504, "deadline_exceeded", None),
        (UnavailableError("no workers"), 503, "unavailable", None),
        (EngineError("step"), 500, "internal_error", None),
        (TransferError("blocks"), 500, "internal_error", None),
        (RuntimeError("a secret"), 500, "internal_error", None),
    ],
)
async def test_errors_of_the_generator_have_their_status(raised, status, code, param, stream, calling):
    async with calling(ScriptedGenerator(fail_with=raised)) as client:
        response = await client.post(CHAT, json={"messages": USER, "stream": stream})
    error = error_of(response, status)
    assert (error["code"], error["param"]) == (code, param)
    assert ("retry-after" in response.headers) == (status in (429, 503))
    assert response.headers.get("x-should-retry") == ("false" if status == 504 else None)
    assert "secret" not in response.text


async def test_an_error_in_mid_stream_is_its_last_line(calling):
    generator = ScriptedGenerator(fail_with=UnavailableError("the worker died"), fail_after=2)
    async with calling(generator) as client:
        response = await client.post(COMPLETIONS, json={"prompt": "x", "stream": True})
    lines = response.text.strip().split("\n\n")
    assert response.status_code == 200 and len(lines) == 3
    error = json.loads(lines[-1].removeprefix("data: "))["error"]
    assert (error["message"], error["code"]) == ("the worker died", "unavailable")


async def test_one_prompt_that_fails_ends_the_others(calling):
    class FailsOnSecond(ScriptedGenerator):
        async def generate(self, command):
            async for event in super().generate(command):
                if command.request_id.endswith("-1"):
                    raise EngineError("second")
                yield event

    generator = FailsOnSecond(["x"] * 1000, pause_s=0.001)
    async with calling(generator) as client:
        assert "second" in error_of(await client.post(COMPLETIONS, json={"prompt": ["a", "b"]}), 500)["message"]
    await generator.until(num_running=0, num_closed=2)


async def test_paths_and_methods_that_do_not_exist(calling):
    async with calling() as client:
        error_of(await client.get("/v1/nothing"), 404)
        response = await client.get(COMPLETIONS)
        error_of(response, 405)
        assert "POST" in response.headers["allow"]
