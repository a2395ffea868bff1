"""The router's core goes on with an answer that another router has begun."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from common.errors import InvalidRequestError
from common.request import FinishReason, SamplingParams
from protos import worker_pb2
from router.generation import GenerateCommand, GenerateEvent, ResumedChoice, ResumePoint, events_of
from tests.support.conducting import TIMEOUT_S, Scene, make_command, token_ids
from tests.support.scripted_worker import ScriptedWorker


async def begin(scene: Scene, **fields: Any) -> ResumePoint:
    """An answer of one token, for its start."""
    scene.prefill.on_submit = lambda worker, submit: worker.tokens(submit.leg, 0, 10, finish=True)
    events = await scene.ask(max_tokens=1, **fields)
    assert events[0].start is not None
    return ResumePoint(prompt_digest=events[0].start.prompt_digest, choices=())


def resumed(point: ResumePoint, *choices: ResumedChoice, max_tokens: int = 4, **sampling: Any) -> GenerateCommand:
    return dataclasses.replace(
        make_command(),
        sampling=SamplingParams(**{"max_tokens": max_tokens, "seed": 5, **sampling}),
        resume_from=dataclasses.replace(point, choices=choices),
    )


def had(*token_ids: int, index: int = 0, finish_reason: FinishReason | None = None) -> ResumedChoice:
    return ResumedChoice(index=index, token_ids=token_ids, num_text_chars=0, finish_reason=finish_reason)


async def answer(scene: Scene, command: GenerateCommand) -> list[GenerateEvent]:
    async with asyncio.timeout(TIMEOUT_S):
        return [event async for event in events_of(scene.core, command)]


async def test_the_first_event_says_what_another_router_needs(scene: Scene) -> None:
    scene.prefill.on_submit = lambda worker, submit: worker.tokens(submit.leg, 0, 10, finish=True)
    first, last = await scene.ask(max_tokens=1)
    assert first.start is not None
    assert first.start.seed == scene.prefill.submits[0].leg.sampling.seed
    assert len(first.start.prompt_digest) == 16
    assert last.start is None
    again, _ = await scene.ask(max_tokens=1)
    other, _ = await scene.ask(max_tokens=1, prompt=scene.prompt(1, 2, 4))
    assert again.start is not None and other.start is not None
    assert again.start.prompt_digest == first.start.prompt_digest != other.start.prompt_digest


async def test_a_worker_gets_the_tokens_so_far_and_the_caller_only_new_ones(scene: Scene) -> None:
    point = await begin(scene)

    def script(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        worker.tokens(submit.leg, 2, 12)
        taker = scene.decode if scene.decode.reserves else scene.other_decode
        taker.tokens(submit.leg, 3, 13, finish=True)

    scene.prefill.on_submit = script
    command = resumed(point, had(10, 11), prompt_logprobs=1, stop=("never",))
    events = await answer(scene, command)
    leg = scene.prefill.submits[-1].leg
    assert list(leg.output_token_ids) == [10, 11]
    assert leg.sampling.seed == 5
    assert not leg.sampling.HasField("prompt_logprobs")
    assert token_ids(events) == [12, 13]
    assert events[0].choices[0].first_index == 2
    assert events[-1].usage is not None
    assert events[-1].usage.generated_tokens == 4


async def test_choices_go_on_each_by_itself(scene: Scene) -> None:
    point = await begin(scene)

    def script(worker: ScriptedWorker, submit: worker_pb2.Submit) -> None:
        (index,) = submit.leg.choice_indices
        begun = len(submit.leg.output_token_ids)
        worker.tokens(submit.leg, begun, *range(20 + begun, 23), choice=index, finish=True)

    scene.prefill.on_submit = script
    done = had(30, index=1, finish_reason=FinishReason.STOP)
    events = await answer(scene, resumed(point, had(20, 21), done, n=3, max_tokens=3))
    assert [token_ids(events, choice) for choice in range(3)] == [[22], [], [20, 21, 22]]
    assert events[-1].usage is not None
    assert events[-1].usage.generated_tokens == 3 + 1 + 3
    asked = [list(submit.leg.choice_indices) for submit in scene.prefill.submits[1:]]
    assert sorted(asked) == [[0], [2]]


async def test_of_a_whole_answer_only_the_figures_are_told(scene: Scene) -> None:
    point = await begin(scene)
    events = await answer(scene, resumed(point, had(10, 11, finish_reason=FinishReason.STOP)))
    assert [event.choices for event in events] == [()]
    assert events[0].usage is not None
    assert events[0].usage.generated_tokens == 2
    assert len(scene.prefill.submits) == 1


@pytest.mark.parametrize(
    ("choices", "sampling", "field"),
    [
        ((), {}, "resume_from.choices"),
        ((had(),), {}, "resume_from.choices"),
        ((had(1, index=1),), {}, "resume_from.choices"),
        ((had(1), had(2)), {}, "resume_from.choices"),
        ((had(1, 2, 3, 4, 5),), {}, "resume_from.choices[0].token_ids"),
        ((had(-1),), {}, "resume_from.choices[0].token_ids"),
        ((had(9999),), {}, "resume_from.choices[0].token_ids"),
        ((had(1),), {"seed": None}, "seed"),
    ],
)
async def test_a_point_that_is_none_names_the_field(
    scene: Scene, choices: tuple[ResumedChoice, ...], sampling: dict[str, Any], field: str
) -> None:
    point = await begin(scene)
    with pytest.raises(InvalidRequestError) as caught:
        await answer(scene, resumed(point, *choices, **sampling))
    assert caught.value.field == field


async def test_another_prompt_is_refused(scene: Scene) -> None:
    point = await begin(scene, prompt=scene.prompt(7, 7))
    with pytest.raises(InvalidRequestError) as caught:
        await answer(scene, resumed(point, had(10)))
    assert caught.value.field == "resume_from.prompt_digest"


async def test_silence_is_broken_where_it_is_asked_for(scene: Scene) -> None:
    events = events_of(scene.core, make_command(heartbeat_s=0.05))
    for _ in range(3):
        assert await anext(events) == GenerateEvent()
    await events.aclose()
