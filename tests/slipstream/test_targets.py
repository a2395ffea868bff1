from __future__ import annotations

from protos import inference_pb2
from slipstream.connection import RouterSilentError
from slipstream.pursuit import Pursuit
from slipstream.targets import Targets

TWO = "one:1,two:2"


def pursuit(targets: Targets) -> Pursuit:
    return Pursuit(targets, inference_pb2.GenerateRequest(), timeout_s=60.0, resume_s=30.0, heartbeat_s=1.0)


def begin_answer(one: Pursuit) -> int:
    index = one.begin().index
    response = inference_pb2.GenerateResponse(request_id="r")
    response.start.seed = 1
    response.choices.add(index=0, token_ids=[7])
    one.take(response)
    return index


def test_equals_are_used_by_turns() -> None:
    targets = Targets(TWO)
    assert {targets.begin(), targets.begin()} == {0, 1}


def test_whoever_was_kept_waiting_in_vain_goes_elsewhere_even_when_the_rest_is_over() -> None:
    targets = Targets(TWO)
    one = pursuit(targets)
    silent = begin_answer(one)
    assert one.note_failure(RouterSilentError("one:1", 4.0), by_connection=True) == 0.0
    one.end()
    for target in targets._targets:
        target.rests_until_s = 0.0  # a while later
    targets._targets[1 - silent].num_calls = 100
    assert one.begin().index == 1 - silent


def test_the_only_router_is_asked_again_over_another_connection() -> None:
    targets = Targets("one:1")
    one = pursuit(targets)
    assert one.begin().index == 0
    assert one.note_failure(RouterSilentError("one:1", 4.0), by_connection=True) == 0.0
    one.end()
    assert one.begin().index == 0
