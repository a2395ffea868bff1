"""What callers said, and what they were answered, stays out of every log, whatever its level and however it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from common.config import ProcessConfig
from protos import inference_pb2, inference_pb2_grpc
from slipstream.launcher import Cluster
from tests.support.small_cluster import small_cluster_config

SECRET = "Qvxzjkw-confidential-8472"
TIMEOUT_S = 30.0
# Long enough that nothing else looks like a part of it.
PIECE_CHARS = 12


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    process = ProcessConfig(log_level="debug")
    with Cluster(small_cluster_config(tiny_model, process=process, max_local_prefill_tokens=0)) as cluster:
        yield cluster


def ask_over_grpc(cluster: Cluster) -> list[str]:
    """Good and bad requests; what was answered."""
    sampling: dict[str, Any] = {"max_tokens": 24, "ignore_eos": True, "stop": [SECRET]}
    secret_json = json.dumps({"name": SECRET})
    chat = {"messages": [{"role": "user", "content": SECRET, "extra_json": secret_json}]}
    requests = [
        {"text": SECRET, "sampling": sampling},
        {"chat": chat, "sampling": sampling},
        {"chat": {**chat, "tools_json": f"[{secret_json}"}},
        {"chat": {**chat, "template_kwargs_json": secret_json}, "sampling": sampling},
        {"chat": {"messages": [{"role": SECRET, "content": SECRET}]}, "sampling": sampling},
        {"text": SECRET, "sampling": {"temperature": -1.0}},
        {"text": SECRET, "sampling": {"max_tokens": 100_000}},
        {"text": SECRET * 4000, "sampling": sampling},
        {
            "text": SECRET,
            "sampling": {**sampling, "logprobs": 5},
            "route": {"exclude": ["decode-0"]},
            "deadline_ms": 300,
        },
    ]
    answers = []
    with grpc.insecure_channel(cluster.grpc_addresses[0]) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        for fields in requests:
            try:
                parts = list(stub.Generate(inference_pb2.GenerateRequest(**fields), timeout=TIMEOUT_S))
                answers.append("".join(choice.text for part in parts for choice in part.choices))
            except grpc.RpcError:
                answers.append("")
        raw: Any = channel.unary_stream("/slipstream.v1.Inference/Generate", request_serializer=None)
        with pytest.raises(grpc.RpcError):  # a text that is no UTF-8
            list(raw(b"\x12\x1d" + SECRET.encode() + b"\xff\xfe\xff\xfe", timeout=TIMEOUT_S))
    return answers


def ask_over_http(cluster: Cluster) -> list[str]:
    said = {"role": "user", "content": SECRET}
    requests: list[tuple[str, Any]] = [
        ("completions", {"prompt": SECRET, "echo": True}),
        ("completions", {"prompt": SECRET, "stream": True}),
        ("completions", {"prompt": [SECRET, SECRET], "stop": SECRET}),
        ("completions", {"prompt": {"text": SECRET}}),
        ("chat/completions", {"messages": [said]}),
        ("chat/completions", {"messages": [said], "stream": True}),
        ("chat/completions", {"messages": [{**said, "name": SECRET}], "tools": [{"type": "function", "name": SECRET}]}),
        ("chat/completions", {"messages": [said], "chat_template_kwargs": {"x": SECRET}}),
        ("chat/completions", {"messages": SECRET}),
        ("chat/completions", {"messages": [said], "user": SECRET, "metadata": {"note": SECRET}}),
    ]
    answers = []
    with httpx.Client(base_url=f"{cluster.http_urls[0]}/v1/", timeout=TIMEOUT_S) as client:
        for path, fields in requests:
            body = {"model": "tiny", "max_tokens": 24, "ignore_eos": True, "temperature": 1.0, **fields}
            answer = client.post(path, json=body)
            choices = [] if fields.get("stream") or answer.status_code != 200 else answer.json()["choices"]
            answers += [choice.get("text") or choice.get("message", {}).get("content") or "" for choice in choices]
        client.post("completions", content=f'{{"prompt": "{SECRET}'.encode())
        client.post("completions", content=f'{{"prompt": "{SECRET}'.encode() + b'\xff"}')
    return answers


def test_no_text_of_a_request_or_an_answer_is_logged(cluster: Cluster) -> None:
    answers = [*ask_over_grpc(cluster), *ask_over_http(cluster)]
    assert sum(len(answer) > 2 * PIECE_CHARS for answer in answers) >= 6
    logs = "".join(path.read_text(errors="replace") for path in sorted(cluster.log_dir.iterdir()))
    assert " D " in logs  # debug lines are there
    assert SECRET not in logs
    pieces = {answer[:PIECE_CHARS] for answer in answers if len(answer) >= PIECE_CHARS}
    assert not [piece for piece in pieces if piece in logs]
    assert cluster.newly_ended() == []
