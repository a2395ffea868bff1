"""Every bad input gets an error that names the field, over gRPC and over HTTP, and the service goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import httpx
import pytest

from common.net.status import FIELD_KEY
from protos import inference_pb2, inference_pb2_grpc
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left

NAN = float("nan")
MAX_MODEL_LEN = 2048
TEN_MEGABYTES_OF_TEXT = "The harbour master kept two ledgers. " * (10_000_000 // 37)
GENERATE = "/slipstream.v1.Inference/Generate"
INVALID, NOT_FOUND = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND


@pytest.fixture(scope="module")
def channel(small_cluster: Cluster) -> Iterator[grpc.Channel]:
    options = [("grpc.max_send_message_length", 64 * 2**20)]
    with grpc.insecure_channel(small_cluster.grpc_addresses[0], options) as channel:
        yield channel


@pytest.fixture(scope="module")
def http(small_cluster: Cluster) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=small_cluster.http_urls[0], timeout=60.0) as client:
        yield client


@pytest.fixture(autouse=True)
def still_serves(channel: grpc.Channel, http: httpx.Client, small_cluster: Cluster) -> Iterator[None]:
    """After each bad input a good one is answered, over both, by the same processes."""
    yield
    answer = list(generate(channel, request(token_ids=[5, 6, 7], max_tokens=2, ignore_eos=True)))
    assert answer[-1].usage.generated_tokens == 2
    body = {"model": "tiny", "prompt": [5, 6, 7], "max_tokens": 2, "ignore_eos": True}
    assert http.post("/v1/completions", json=body).json()["usage"]["completion_tokens"] == 2
    assert small_cluster.newly_ended() == []


def request(*, model: str = "", **fields: Any) -> inference_pb2.GenerateRequest:
    """A request with the given prompt (text, token_ids or chat) and sampling fields."""
    message = inference_pb2.GenerateRequest(model=model)
    if "text" in fields:
        message.text = fields.pop("text")
    if "token_ids" in fields:
        message.token_ids.ids.extend(fields.pop("token_ids"))
        message.token_ids.SetInParent()
    if "messages" in fields:
        message.chat.SetInParent()
        for said in fields.pop("messages"):
            message.chat.messages.add(**said)
    for name, value in fields.items():
        setattr(message.sampling, name, value)
    return message


def generate(channel: grpc.Channel, message: inference_pb2.GenerateRequest) -> Iterator[Any]:
    stub = inference_pb2_grpc.InferenceStub(channel)
    return iter(stub.Generate(message, timeout=60.0))


def grpc_error(answer: Iterator[Any]) -> tuple[grpc.StatusCode, str, str]:
    """Code, message and the field named in the metadata."""
    with pytest.raises(grpc.RpcError) as caught:
        list(answer)
    error: Any = caught.value
    metadata = dict(error.trailing_metadata() or ())
    return error.code(), error.details(), metadata.get(FIELD_KEY, "")


GRPC_CASES: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "no prompt": ({}, INVALID, "prompt"),
    "empty text": ({"text": ""}, INVALID, "prompt"),
    "empty token ids": ({"token_ids": []}, INVALID, "prompt"),
    "no messages": ({"messages": []}, INVALID, "messages"),
    "prompt longer than the model": ({"token_ids": [5] * (MAX_MODEL_LEN + 1)}, INVALID, "prompt"),
    "prompt as long as the model": ({"token_ids": [5] * MAX_MODEL_LEN}, INVALID, "prompt"),
    "10 MB of text": ({"text": TEN_MEGABYTES_OF_TEXT}, INVALID, "prompt"),
    "max_tokens 0": ({"token_ids": [5], "max_tokens": 0}, INVALID, "max_tokens"),
    "max_tokens below 0": ({"token_ids": [5], "max_tokens": -1}, INVALID, "max_tokens"),
    "max_tokens huge": ({"token_ids": [5], "max_tokens": 2**62}, INVALID, "max_tokens"),
    "min_tokens above max_tokens": ({"token_ids": [5], "max_tokens": 2, "min_tokens": 3}, INVALID, "min_tokens"),
    "temperature NaN": ({"token_ids": [5], "temperature": NAN}, INVALID, "temperature"),
    "temperature infinite": ({"token_ids": [5], "temperature": float("inf")}, INVALID, "temperature"),
    "temperature below 0": ({"token_ids": [5], "temperature": -0.5}, INVALID, "temperature"),
    "top_p 0": ({"token_ids": [5], "top_p": 0.0}, INVALID, "top_p"),
    "top_k below 0": ({"token_ids": [5], "top_k": -5}, INVALID, "top_k"),
    "min_p above 1": ({"token_ids": [5], "min_p": 1.5}, INVALID, "min_p"),
    "repetition_penalty 0": ({"token_ids": [5], "repetition_penalty": 0.0}, INVALID, "repetition_penalty"),
    "n 0": ({"token_ids": [5], "n": 0}, INVALID, "n"),
    "n huge": ({"token_ids": [5], "n": 10**9}, INVALID, "n"),
    "logprobs huge": ({"token_ids": [5], "logprobs": 21}, INVALID, "logprobs"),
    "unknown model": ({"token_ids": [5], "model": "gpt-17"}, NOT_FOUND, "model"),
    "token id above the vocabulary": ({"token_ids": [5, 49_152]}, INVALID, "prompt"),
    "token id below 0": ({"token_ids": [5, -1]}, INVALID, "prompt"),
    "token id beyond 32 bits": ({"token_ids": [5, 2**40]}, INVALID, "prompt"),
    "model name of 20 kB": ({"token_ids": [5], "model": "x" * 20_000}, NOT_FOUND, "model"),
    "model name of 20,000 letters": (
        {"token_ids": [5], "model": "\N{LATIN SMALL LETTER E WITH ACUTE}" * 20_000},
        NOT_FOUND,
        "model",
    ),
}


@pytest.mark.parametrize("name", GRPC_CASES)
def test_grpc(channel: grpc.Channel, name: str) -> None:
    fields, code, field = GRPC_CASES[name]
    assert_names_field(grpc_error(generate(channel, request(**fields))), code, field)


def assert_names_field(error: tuple[grpc.StatusCode, str, str], code: grpc.StatusCode, field: str) -> None:
    found_code, message, found_field = error
    assert found_code is code, message
    assert field in message and field in found_field
    assert len(message) < 1000


def raw_generate(channel: grpc.Channel, message: bytes) -> Iterator[Any]:
    """The call with bytes as they are: the generated classes would refuse to make them."""
    call: Any = channel.unary_stream(GENERATE, request_serializer=None, response_deserializer=None)
    return iter(call(message, timeout=60.0))


@pytest.mark.parametrize("message", [b"\x12\x03ab\xff", b"\x0a\x02\xc3\x28"], ids=["text", "model"])
def test_grpc_invalid_utf8(channel: grpc.Channel, message: bytes) -> None:
    code, details, _ = grpc_error(raw_generate(channel, message))
    assert code is INVALID, details
    assert "UTF-8" in details or "GenerateRequest" in details


def test_grpc_malformed_message(channel: grpc.Channel) -> None:
    code, details, _ = grpc_error(raw_generate(channel, b"\x12\xff\xff\xff\xff\x0f"))
    assert code is INVALID, details


@pytest.mark.parametrize("text", ['[{"name":', "[" * 100_000], ids=["cut short", "deeply nested"])
def test_grpc_malformed_json_in_a_field(channel: grpc.Channel, text: str) -> None:
    message = request(messages=[{"role": "user", "content": "x"}])
    message.chat.tools_json = text
    assert_names_field(grpc_error(generate(channel, message)), INVALID, "tools_json")


COMPLETION_CASES: dict[str, tuple[dict[str, Any], int, str]] = {
    "no prompt": ({"prompt": None}, 400, "prompt"),
    "empty prompt": ({"prompt": ""}, 400, "prompt"),
    "empty token ids": ({"prompt": []}, 400, "prompt"),
    "prompt of the wrong type": ({"prompt": {"text": "x"}}, 400, "prompt"),
    "prompt longer than the model": ({"prompt": [5] * (MAX_MODEL_LEN + 1)}, 400, "prompt"),
    "10 MB of text": ({"prompt": TEN_MEGABYTES_OF_TEXT}, 400, "prompt"),
    "max_tokens 0": ({"max_tokens": 0}, 400, "max_tokens"),
    "max_tokens huge": ({"max_tokens": 10**12}, 400, "max_tokens"),
    "max_tokens beyond 64 bits": ({"max_tokens": 10**30}, 400, "max_tokens"),
    "max_tokens a string": ({"max_tokens": "many"}, 400, "max_tokens"),
    "temperature a string": ({"temperature": "hot"}, 400, "temperature"),
    "temperature below 0": ({"temperature": -1}, 400, "temperature"),
    "unknown model": ({"model": "gpt-17"}, 404, "model"),
    "token id above the vocabulary": ({"prompt": [5, 49_152]}, 400, "prompt"),
    "token id below 0": ({"prompt": [5, -1]}, 400, "prompt"),
    "token id no number": ({"prompt": [5, "six"]}, 400, "prompt"),
    "token id beyond 64 bits": ({"prompt": [5, 2**70]}, 400, "prompt"),
    "n 0": ({"n": 0}, 400, "n"),
    "stop empty": ({"stop": [""]}, 400, "stop"),
}


@pytest.mark.parametrize("name", COMPLETION_CASES)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_http_completion(http: httpx.Client, name: str, stream: bool) -> None:
    fields, status, field = COMPLETION_CASES[name]
    body = {"model": "tiny", "prompt": [5], "max_tokens": 2, "stream": stream, **fields}
    assert_error(http.post("/v1/completions", json=body), status, field)


CHAT_CASES: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": None}, "messages"),
    "empty messages": ({"messages": []}, "messages"),
    "messages of the wrong type": ({"messages": "Hello"}, "messages"),
    "a message without a role": ({"messages": [{"content": "x"}]}, "messages"),
    "10 MB of text": ({"messages": [{"role": "user", "content": TEN_MEGABYTES_OF_TEXT}]}, ""),
    "max_tokens 0": ({"max_tokens": 0}, "max_tokens"),
}


@pytest.mark.parametrize("name", CHAT_CASES)
def test_http_chat(http: httpx.Client, name: str) -> None:
    fields, field = CHAT_CASES[name]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, **fields}
    assert_error(http.post("/v1/chat/completions", json=body), 400, field)


@pytest.mark.parametrize(
    "content",
    [
        b'{"model": "tiny", "prompt": "Hello',
        b"",
        b"[1, 2, 3]",
        b'"Hello"',
        b'{"model": "tiny", "prompt": "ab\xff\xfe"}',
        b"[" * 100_000,
    ],
    ids=["cut short", "empty", "an array", "a string", "invalid UTF-8", "deeply nested"],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_http_malformed_json(http: httpx.Client, path: str, content: bytes) -> None:
    response = http.post(path, content=content, headers={"content-type": "application/json"})
    assert_error(response, 400, "")
    message = response.json()["error"]["message"]
    assert "JSON" in message or "UTF-8" in message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_http_temperature_is_no_number(http: httpx.Client, number: str) -> None:
    content = f'{{"model": "tiny", "prompt": [5], "temperature": {number}}}'
    response = http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert_error(response, 400, "temperature")


def test_http_lone_surrogate(http: httpx.Client) -> None:
    content = b'{"model": "tiny", "prompt": "ab\\ud800", "max_tokens": 2}'
    response = http.post("/v1/completions", content=content, headers={"content-type": "application/json"})
    assert_error(response, 400, "")
    assert "surrogate" in response.json()["error"]["message"]


def test_nothing_is_left(small_cluster: Cluster) -> None:
    assert_nothing_left(small_cluster)


def assert_error(response: httpx.Response, status: int, field: str) -> None:
    """OpenAI's shape; the message and `param` name the field."""
    assert response.status_code == status, response.text[:500]
    error = json.loads(response.text)["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert field in error["message"] and len(error["message"]) < 1000
    if field:
        assert field in error["param"]
