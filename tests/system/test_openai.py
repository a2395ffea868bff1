"""The real `openai` package against a running cluster."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest

from slipstream.client import Client
from slipstream.launcher import Cluster

QUESTION = "Where do the gulls sleep?"


@pytest.fixture
def openai_client(small_cluster: Cluster) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{small_cluster.http_urls[0]}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def client(small_cluster: Cluster) -> Iterator[Client]:
    with Client(small_cluster.grpc_addresses) as client:
        yield client


def test_models(openai_client: openai.OpenAI) -> None:
    assert [model.id for model in openai_client.models.list()] == ["tiny"]


def test_a_completion_is_what_grpc_answers(openai_client: openai.OpenAI, client: Client) -> None:
    expected = client.generate("The harbour", max_tokens=12, temperature=0.0, ignore_eos=True)
    answer = openai_client.completions.create(
        model="tiny",
        prompt="The harbour",
        max_tokens=12,
        temperature=0.0,
        extra_body={"ignore_eos": True, "return_token_ids": True},
    )
    (choice,) = answer.choices
    assert choice.text == expected.text and choice.finish_reason == "length"
    assert choice.model_extra is not None and tuple(choice.model_extra["token_ids"]) == expected.token_ids
    assert answer.usage is not None and answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens == expected.usage.prompt_tokens


def test_a_streamed_chat_adds_up_to_the_whole(openai_client: openai.OpenAI, client: Client) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    expected = client.generate(messages=messages, max_tokens=12, temperature=0.0, ignore_eos=True)
    stream = openai_client.chat.completions.create(
        model="tiny",
        messages=[{"role": "user", "content": QUESTION}],
        max_tokens=12,
        temperature=0.0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == expected.text
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["length"]
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 12


def test_errors_are_openais(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature") as caught:
        openai_client.completions.create(model="tiny", prompt="x", temperature=-1)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError, match="gpt-17"):
        openai_client.completions.create(model="gpt-17", prompt="x")
