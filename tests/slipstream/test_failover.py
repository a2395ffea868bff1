"""Routers that are lost, before and after the first token; by both clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from common.errors import DeadlineExceededError, InvalidRequestError, OverloadedError, UnavailableError
from slipstream import AsyncClient, Client, Generation
from tests.support.scripted_router import DIGEST, SEED, Script, ScriptedRouter

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
SILENCE_S = 0.3

Ask = Callable[..., Generation]


def ask_blocking(targets: list[str], *, resume_s: float = 5.0, **options: Any) -> Generation:
    with Client(targets, silence_s=SILENCE_S, resume_s=resume_s) as client:
        return client.generate("x", **options)


def ask_async(targets: list[str], *, resume_s: float = 5.0, **options: Any) -> Generation:
    async def ask() -> Generation:
        async with AsyncClient(targets, silence_s=SILENCE_S, resume_s=resume_s) as client:
            return await client.generate("x", **options)

    return asyncio.run(ask())


@pytest.fixture(params=[ask_blocking, ask_async], ids=["blocking", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    chosen: Ask = request.param
    return chosen


@pytest.fixture
def targets(router: ScriptedRouter, second_router: ScriptedRouter) -> list[str]:
    return [router.address, second_router.address]


def test_an_answer_goes_on_at_another_router(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]
) -> None:
    router.script = Script(fail_after=2, code=UNAVAILABLE)
    answer = ask(targets, ttft_slo_ms=50)
    assert (answer.text, answer.token_ids, answer.num_resumes) == ("The sky is blue.", (100, 101, 102), 1)
    (request,) = second_router.script.requests
    assert request.request_id == "r1"
    assert request.sampling.seed == SEED
    assert not request.HasField("ttft_slo_ms")
    assert request.resume_from.prompt_digest == DIGEST
    (choice,) = request.resume_from.choices
    assert (list(choice.token_ids), choice.num_text_chars, choice.finish_reason) == ([100, 101], len("The sky "), 0)


def test_a_silent_router_is_given_up(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]
) -> None:
    router.script = Script(words=("The ", "sky "), endless=True)
    began_s = time.monotonic()
    answer = ask(targets)
    assert (answer.text, answer.num_resumes) == ("The sky is blue.", 1)
    assert time.monotonic() - began_s < SILENCE_S + 1.0
    assert router.script.cancelled.wait(5)


def test_a_router_that_gives_signs_of_life_is_waited_for(ask: Ask, router: ScriptedRouter, targets: list[str]) -> None:
    router.script = Script(words=(), endless=True, heartbeats=True)
    with pytest.raises(DeadlineExceededError):
        # The call's own deadline is a little later than this one.
        ask(targets, deadline_ms=1)
    assert len(router.script.requests) == 1


@pytest.mark.parametrize(
    "script",
    [Script(fail_after=0, code=UNAVAILABLE, details="draining"), Script(words=(), endless=True)],
    ids=["draining", "silent"],
)
def test_nothing_is_resumed_before_the_first_token(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str], script: Script
) -> None:
    router.script = script
    answer = ask(targets)
    assert (answer.text, answer.num_resumes) == ("The sky is blue.", 0)
    assert not second_router.script.requests[0].HasField("resume_from")


def test_the_only_router_may_come_back(ask: Ask, router: ScriptedRouter) -> None:
    router.script = Script(fail_after=1, code=UNAVAILABLE)

    def mend(request: Any) -> None:
        if request.HasField("resume_from"):
            router.script = Script()

    router.on_request = mend
    answer = ask([router.address])
    assert (answer.text, answer.num_resumes) == ("The sky is blue.", 1)


def test_an_answer_that_nobody_goes_on_with_fails_in_time(ask: Ask, router: ScriptedRouter) -> None:
    router.script = Script(fail_after=1, code=UNAVAILABLE, details="no worker")
    began_s = time.monotonic()
    with pytest.raises(UnavailableError, match="no worker"):
        ask([router.address], resume_s=0.5)
    assert time.monotonic() - began_s < 2.0


def test_a_full_router_is_asked_again_for_what_has_begun(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]
) -> None:
    hint = (("slipstream-retry-after-ms", "100"),)
    router.script = Script(fail_after=1, code=UNAVAILABLE)
    second_router.script = Script(fail_after=1, code=grpc.StatusCode.RESOURCE_EXHAUSTED, trailers=hint)
    second_router.on_request = lambda request: setattr(
        second_router, "script", Script() if len(second_router.script.requests) else second_router.script
    )
    assert ask(targets).text == "The sky is blue."


def test_what_has_not_begun_is_refused_at_once(ask: Ask, router: ScriptedRouter, targets: list[str]) -> None:
    router.script = Script(fail_after=0, code=grpc.StatusCode.RESOURCE_EXHAUSTED)
    with pytest.raises(OverloadedError):
        ask(targets)


def test_a_deadline_stays_the_deadline(ask: Ask, router: ScriptedRouter) -> None:
    router.script = Script(fail_after=1, code=UNAVAILABLE)
    began_s = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="deadline_ms: 600 ms"):
        ask([router.address], deadline_ms=600)
    assert 0.5 < time.monotonic() - began_s < 2.0
    left_ms = [request.deadline_ms for request in router.requests]
    assert left_ms == sorted(left_ms, reverse=True) and left_ms[-1] < 600


def test_an_answer_without_a_start_is_not_resumed(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]
) -> None:
    router.script = Script(fail_after=1, code=UNAVAILABLE, tells_start=False)
    with pytest.raises(UnavailableError):
        ask(targets)
    assert second_router.script.requests == []


def test_a_router_that_begins_anew_is_not_believed(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]
) -> None:
    router.script = Script(fail_after=1, code=UNAVAILABLE)
    second_router.script = Script(knows_resume=False)
    with pytest.raises(UnavailableError, match="token 0 came where 1 was due"):
        ask(targets, resume_s=0.2)


def test_what_a_router_refuses_to_resume_is_final(
    ask: Ask, router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]
) -> None:
    router.script = Script(fail_after=1, code=UNAVAILABLE)
    second_router.script = Script(fail_after=1, code=grpc.StatusCode.INVALID_ARGUMENT, details="another prompt")
    with pytest.raises(InvalidRequestError, match="another prompt"):
        ask(targets)


def test_a_router_that_failed_rests(router: ScriptedRouter, second_router: ScriptedRouter, targets: list[str]) -> None:
    router.script = Script(fail_after=0, code=UNAVAILABLE)
    with Client(targets) as client:
        for _ in range(6):
            client.generate("x")
    assert len(router.script.requests) == 1
    assert len(second_router.script.requests) == 6


def test_calls_go_where_the_fewest_are(router: ScriptedRouter, second_router: ScriptedRouter) -> None:
    router.script = Script(endless=True, heartbeats=True)
    with Client(f"{router.address},{second_router.address}") as client:
        stream = client.stream("x")
        next(stream)
        for _ in range(3):
            client.generate("x")
        stream.close()  # type: ignore[attr-defined]
    assert len(second_router.script.requests) == 3
