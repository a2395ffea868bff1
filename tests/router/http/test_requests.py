"""Bodies to requests: every field arrives where it belongs."""

from __future__ import annotations

import logging
from dataclasses import replace

import httpx

from common.request import SamplingParams
from router.generation import RouteHint
from router.http import create_app
from router.http.chat_request import ChatRequest
from router.http.completion_request import CompletionRequest
from router.http.unknown_fields import MAX_NAME_CHARS, MAX_TOLD, UnknownFields
from router.metrics import RouterMetrics
from router.text import TextModel
from tests.support.scripted_generator import ScriptedGenerator
from tests.support.tokenizers import byte_level_tokenizer

USER = [{"role": "user", "content": "hi"}]


def test_every_sampling_field():
    sampling = CompletionRequest.decode(
        {
            "prompt": "x",
            "max_tokens": 20.0,
            "min_tokens": 2,
            "temperature": 0,
            "top_p": 0.9,
            "top_k": 40,
            "min_p": 0.05,
            "seed": -2,
            "repetition_penalty": 1.1,
            "presence_penalty": 0.5,
            "frequency_penalty": -0.5,
            "logit_bias": {"50": -100, "7": 1.5},
            "stop": "###",
            "stop_token_ids": [3, 4],
            "ignore_eos": True,
            "n": 2,
            "best_of": 2,
            "logprobs": 0,
            "prompt_logprobs": 5,
        }
    ).sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.greedy) == (20, 2, True)
    assert (sampling.top_p, sampling.top_k, sampling.min_p, sampling.seed) == (0.9, 40, 0.05, 2**64 - 2)
    assert (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) == (1.1, 0.5, -0.5)
    assert sampling.logit_bias == {50: -100.0, 7: 1.5} and sampling.stop == ("###",)
    assert (sampling.stop_token_ids, sampling.ignore_eos, sampling.n) == ((3, 4), True, 2)
    assert (sampling.logprobs, sampling.prompt_logprobs) == (0, 5)


def test_every_scheduling_field():
    scheduling = ChatRequest.decode(
        {
            "messages": USER,
            "priority": -3,
            "deadline_ms": 1500,
            "ttft_slo_ms": 200.5,
            "tpot_slo_ms": 30,
            "cache_salt": "s",
            "route": {"prefill_worker": "p0", "decode_worker": "", "decode_only": True, "exclude": ["d1"]},
        }
    ).scheduling
    assert (scheduling.priority, scheduling.deadline_s, scheduling.ttft_slo_s) == (-3, 1.5, 0.2005)
    assert (scheduling.tpot_slo_s, scheduling.cache_salt) == (0.03, "s")
    assert scheduling.route == RouteHint(prefill_worker="p0", decode_worker=None, decode_only=True, exclude=("d1",))


def test_limits_that_are_not_given():
    assert CompletionRequest.decode({"prompt": "x"}).sampling.max_tokens == 16
    assert CompletionRequest.decode({"prompt": "x", "max_tokens": None}).sampling.max_tokens is None
    assert ChatRequest.decode({"messages": USER}).sampling.max_tokens is None
    both = {"messages": USER, "max_tokens": 5, "max_completion_tokens": 7}
    assert ChatRequest.decode(both).sampling.max_tokens == 7


def test_null_is_absent():
    nulls = ("temperature", "stop", "logit_bias", "seed", "route", "stream", "stream_options", "logprobs", "tools")
    request = ChatRequest.decode({"messages": USER, **dict.fromkeys(nulls)})
    assert request == ChatRequest.decode({"messages": USER})


def test_chat_logprobs():
    def logprobs_of(**fields: object) -> int | None:
        return ChatRequest.decode({"messages": USER, **fields}).sampling.logprobs

    assert logprobs_of() is None and logprobs_of(logprobs=False, top_logprobs=0) is None
    assert logprobs_of(logprobs=True) == 0 and logprobs_of(logprobs=True, top_logprobs=5) == 5


def test_messages_become_what_templates_expect():
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": [1, 2]}'}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, "b", {"type": "refusal", "refusal": "no"}]},
        {"role": "assistant", "content": None, "tool_calls": [call, {"function": {"name": "g", "arguments": ""}}]},
        {"role": "tool", "content": "3", "tool_call_id": "c1"},
        {"role": "assistant", "content": "3", "tool_calls": None, "reasoning_content": "r"},
    ]
    decoded = ChatRequest.decode({"messages": messages}).prompt.messages
    assert decoded[0]["content"] == "a\nb\nno"
    assert decoded[1]["content"] == "" and decoded[1]["tool_calls"][0] == {
        **call,
        "function": {"name": "f", "arguments": {"a": [1, 2]}},
    }
    assert decoded[1]["tool_calls"][1]["function"]["arguments"] == {}
    assert decoded[2]["tool_call_id"] == "c1"
    assert decoded[3] == {"role": "assistant", "content": "3", "reasoning_content": "r"}
    assert messages[1]["content"] is None  # the body is left as it was


def test_tools_and_template_variables():
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = {"messages": USER, "tools": tools, "tool_choice": "auto", "chat_template_kwargs": {"enable_thinking": False}}
    prompt = ChatRequest.decode({**body, "add_generation_prompt": False}).prompt
    assert (prompt.tools, prompt.add_generation_prompt) == (tools, False)
    assert prompt.template_kwargs == {"enable_thinking": False}
    assert ChatRequest.decode({**body, "tools": []}).prompt.tools is None


def test_unknown_fields_are_ignored_by_name():
    body = {"prompt": "x", "user": "me", "wibble": 1, "top_a": 0.2, "route": {"wobble": 2}}
    assert sorted(CompletionRequest.decode(body).unknown_fields) == ["route.wobble", "top_a", "wibble"]


def test_openai_s_fields_at_their_neutral_value_are_taken():
    neutral = {
        "audio": None,
        "functions": [],
        "metadata": {"a": "b"},
        "modalities": ["text"],
        "parallel_tool_calls": True,
        "prediction": {"type": "content", "content": "x"},
        "prompt_cache_key": "k",
        "reasoning_effort": "medium",
        "response_format": {"type": "text"},
        "safety_identifier": "s",
        "service_tier": "auto",
        "store": False,
        "stream": True,
        "stream_options": {"include_usage": False, "include_obfuscation": False},
        "tool_choice": "auto",
        "user": "me",
        "verbosity": "medium",
        "web_search_options": None,
    }
    assert ChatRequest.decode({"messages": USER, **neutral}).unknown_fields == ()


def test_an_ignored_field_is_a_warning_once_and_only_so_many_are(caplog):
    unknown = UnknownFields()
    with caplog.at_level(logging.WARNING, logger="router.http.unknown_fields"):
        for _ in range(2):
            unknown.tell(["wibble", "x" * 10_000])
        assert [record.args for record in caplog.records] == [("wibble",), ("x" * MAX_NAME_CHARS,)]
        unknown.tell(str(number) for number in range(10 * MAX_TOLD))
    assert len(caplog.records) == MAX_TOLD


def test_the_model_s_defaults_are_for_what_is_absent_or_null():
    own = SamplingParams(temperature=0.7, top_p=0.8, top_k=20, min_p=0.1, repetition_penalty=1.05)
    body = {"temperature": 0, "top_k": 0, "min_p": None, "seed": 1}
    expected = replace(own, temperature=0.0, top_k=0, seed=1)
    assert ChatRequest.decode({"messages": USER, **body}, own).sampling == expected
    assert CompletionRequest.decode({"prompt": "x", **body}, own).sampling == replace(expected, max_tokens=16)


async def test_the_service_samples_as_the_model_says(tmp_path):
    byte_level_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.6}')
    generator = ScriptedGenerator()
    app = create_app(generator, text=TextModel.load(tmp_path), metrics=RouterMetrics(), readiness=lambda: None)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as client:
        await client.post("/v1/completions", json={"prompt": "x"})
        await client.post("/v1/chat/completions", json={"messages": USER, "temperature": 1})
    assert [command.sampling.temperature for command in generator.commands] == [0.6, 1.0]
