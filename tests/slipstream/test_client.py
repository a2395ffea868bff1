from __future__ import annotations

import socket
import subprocess
import sys

import grpc
import pytest

from common.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    SlipstreamError,
    UnavailableError,
)
from common.request import FinishReason
from router.generation import RouteHint
from slipstream import Client
from tests.support.scripted_router import Script, ScriptedRouter


def unused_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_generate_puts_the_answer_together(router: ScriptedRouter) -> None:
    with Client(router.address) as client:
        answer = client.generate("Why is the sky blue?")
    assert answer.text == "The sky is blue."
    assert answer.token_ids == (100, 101, 102)
    assert answer.choices[0].finish_reason is FinishReason.STOP
    assert answer.choices[0].stop_string == "\n"
    assert answer.usage.cached_tokens == 2
    assert answer.timings.ttft_s == pytest.approx(0.02)
    assert answer.route.prefill_worker == "prefill-0"


def test_choices_stay_apart(router: ScriptedRouter) -> None:
    with Client(router.address) as client:
        answer = client.generate("x", n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.text for choice in answer.choices} == {"The sky is blue."}


@pytest.mark.parametrize("num_bytes", [5 * 2**20, 65 * 2**20])  # more than the other side takes, or than one sends
def test_a_prompt_that_no_message_holds_is_refused_in_plain_words(router: ScriptedRouter, num_bytes: int) -> None:
    with (
        Client(router.address) as client,
        pytest.raises(InvalidRequestError, match=r"^prompt: is too large: ") as caught,
    ):
        client.generate("x" * num_bytes)
    assert caught.value.field == "prompt"


def test_stream_gives_each_message(router: ScriptedRouter) -> None:
    with Client(router.address) as client:
        texts = [delta.text for delta in client.stream("x")]
    assert texts == ["The ", "sky ", "is blue.", ""]


def test_options_reach_the_wire(router: ScriptedRouter) -> None:
    with Client(router.address) as client:
        client.generate(
            [1, 2, 3],
            temperature=0.0,
            seed=0,
            stop=["\n"],
            logit_bias={5: -1.5},
            priority=-2,
            deadline_ms=5000,
            route=RouteHint(decode_worker="decode-1", exclude=("decode-0",)),
        )
    (request,) = router.script.requests
    assert list(request.token_ids.ids) == [1, 2, 3]
    assert request.sampling.HasField("temperature")
    assert request.sampling.temperature == 0.0
    assert request.sampling.HasField("seed")
    assert not request.sampling.HasField("max_tokens")
    assert dict(request.sampling.logit_bias) == {5: -1.5}
    assert request.priority == -2
    assert request.deadline_ms == 5000
    assert request.route.decode_worker == "decode-1"
    assert list(request.route.exclude) == ["decode-0"]


def test_messages_reach_the_wire_with_their_further_fields(router: ScriptedRouter) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "tool", "content": "4", "name": "add"}]
    with Client(router.address) as client:
        client.generate(messages=messages, template_kwargs={"enable_thinking": False})
    chat = router.script.requests[0].chat
    assert [(message.role, message.content, message.extra_json) for message in chat.messages] == [
        ("user", "Hi", ""),
        ("tool", "4", '{"name": "add"}'),
    ]
    assert chat.template_kwargs_json == '{"enable_thinking": false}'
    assert not chat.HasField("add_generation_prompt")


@pytest.mark.parametrize(
    ("prompt", "options", "field"),
    [
        (None, {}, "prompt"),
        ("x", {"messages": []}, "prompt"),
        ("x", {"tools": []}, "tools"),
        ("\ud800", {}, "prompt"),
        (["a"], {}, "prompt"),
        ([2**70], {}, "prompt"),
        ("x", {"seed": -1}, "seed"),
        ("x", {"max_tokens": "many"}, "max_tokens"),
        ("x", {"stop": "abc"}, "stop"),
        ("x", {"stop": [1]}, "stop"),
        ("x", {"logit_bias": {"a": 1}}, "logit_bias"),
        (None, {"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        (None, {"messages": ["hi"]}, "messages[0]"),
        (None, {"messages": [], "template_kwargs": {"x": object()}}, "template_kwargs"),
    ],
)
def test_what_the_wire_cannot_carry_names_the_field(prompt: object, options: dict[str, object], field: str) -> None:
    with Client(unused_address()) as client, pytest.raises(InvalidRequestError) as caught:
        client.generate(prompt, **options)  # type: ignore[arg-type]
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        (["a", "b"], {}, "prompt: must be one text, or a list of token ids, is ['a', 'b']"),
        (5, {}, "prompt: must be one text, or a list of token ids, is 5"),
        (None, {"messages": "hi"}, "messages: must be a list of messages, is 'hi'"),
        ("x", {"logprobs": True}, "logprobs: must be a number, is True"),
    ],
    ids=str,
)
def test_what_is_of_another_kind_is_told_in_plain_words(
    prompt: object, options: dict[str, object], message: str
) -> None:
    with Client(unused_address()) as client, pytest.raises(InvalidRequestError) as caught:
        client.generate(prompt, **options)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("target", ["localhost", "http://a:1", "a:0", (), ("a:1", "b")])
def test_a_target_that_is_no_address_is_refused_at_once(target: str | tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^target: must be "):
        Client(target)


def test_a_route_may_be_a_mapping(router: ScriptedRouter) -> None:
    with Client(router.address) as client:
        client.generate("x", route={"decode_worker": "decode-1", "decode_only": True, "exclude": ["a", "b"]})
        client.generate("x", route={"prefill_worker": None})
    first, second = (request.route for request in router.script.requests)
    assert (first.decode_worker, first.decode_only, list(first.exclude)) == ("decode-1", True, ["a", "b"])
    assert (second.prefill_worker, second.decode_only, list(second.exclude)) == ("", False, [])


@pytest.mark.parametrize(
    ("route", "message"),
    [
        ({"worker": "a"}, "route: has no 'worker'; known: prefill_worker, decode_worker, decode_only, exclude"),
        ({"decode_worker": 7}, "route.decode_worker: can't be sent"),
        ({"exclude": "decode-0"}, "route.exclude: must be a list"),
        ("decode-0", "route: must be a RouteHint, or a mapping of prefill_worker"),
    ],
)
def test_a_route_that_is_none_is_named(route: object, message: str) -> None:
    with Client(unused_address()) as client, pytest.raises(InvalidRequestError) as caught:
        client.generate("x", route=route)  # type: ignore[arg-type]
    assert str(caught.value).startswith(message)


def test_an_unknown_option_is_a_type_error() -> None:
    with Client(unused_address()) as client, pytest.raises(TypeError, match="'temprature'"):
        client.generate("x", temprature=1)  # type: ignore[call-arg]


def test_an_invalid_argument_carries_its_field(router: ScriptedRouter) -> None:
    router.script = Script(
        fail_after=0,
        code=grpc.StatusCode.INVALID_ARGUMENT,
        details="top_p: must be above 0",
        trailers=(("slipstream-field", "top_p"),),
    )
    with Client(router.address) as client, pytest.raises(InvalidRequestError) as caught:
        client.generate("x")
    assert caught.value.field == "top_p"
    assert str(caught.value) == "top_p: must be above 0"


def test_an_overload_carries_its_retry_hint(router: ScriptedRouter) -> None:
    router.script = Script(
        fail_after=0,
        code=grpc.StatusCode.RESOURCE_EXHAUSTED,
        details="the queue is full",
        trailers=(("slipstream-retry-after-ms", "2500"),),
    )
    with Client(router.address) as client, pytest.raises(OverloadedError) as caught:
        client.generate("x")
    assert caught.value.retry_after_s == 2.5


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, ModelNotFoundError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceededError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.INTERNAL, SlipstreamError),
        (grpc.StatusCode.UNIMPLEMENTED, SlipstreamError),
    ],
)
def test_a_status_becomes_its_error(router: ScriptedRouter, code: grpc.StatusCode, kind: type[Exception]) -> None:
    router.script = Script(fail_after=0, code=code, details="what happened")
    with Client(router.address) as client, pytest.raises(kind, match="what happened"):
        client.generate("x")


def test_the_timeout_of_the_client_holds(router: ScriptedRouter) -> None:
    router.script = Script(endless=True, heartbeats=True)
    with Client(router.address, timeout_s=0.3) as client, pytest.raises(DeadlineExceededError):
        client.generate("x")
    assert router.script.cancelled.wait(5)


def test_closing_the_stream_cancels_the_request(router: ScriptedRouter) -> None:
    router.script = Script(endless=True)
    with Client(router.address) as client:
        stream = client.stream("x")
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert router.script.cancelled.wait(5)


def test_routers_are_used_by_turns(router: ScriptedRouter, second_router: ScriptedRouter) -> None:
    with Client([router.address, second_router.address]) as client:
        for _ in range(4):
            client.generate("x")
    assert len(router.script.requests) == len(second_router.script.requests) == 2


def test_a_router_that_does_not_answer_is_passed_over(router: ScriptedRouter) -> None:
    with Client([unused_address(), router.address]) as client:
        assert client.generate("x").text == client.generate("x").text == "The sky is blue."
        assert client.status().router is not None


def test_no_router_at_all_names_every_address() -> None:
    addresses = [unused_address(), unused_address()]
    with Client(addresses) as client, pytest.raises(UnavailableError) as caught:
        client.generate("x")
    assert all(address in str(caught.value) for address in addresses)


def test_the_control_calls(router: ScriptedRouter) -> None:
    with Client(router.address) as client:
        assert [card.id for card in client.models()] == ["tiny"]
        assert client.reset_prefix_cache() == 30
        assert client.check_integrity().num_free_blocks == 100
        (worker,) = client.status().workers
    assert (worker.role, worker.state) == ("decode", "ready")
    assert worker.load.num_used_blocks == 40
    assert worker.load.hit_rate == 0.25


def test_importing_the_client_does_not_import_torch() -> None:
    code = "import sys, slipstream; slipstream.Client, slipstream.AsyncClient; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
