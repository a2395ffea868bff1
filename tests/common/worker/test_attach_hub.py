"""What a step brought goes to the router of each leg, and what can't be sent costs its own choice alone."""

from __future__ import annotations

import pytest

from common.engine.results import LegEnded, LegEndReason, TokenOutput
from common.errors import Status
from common.request import FinishReason, LegKey, RequestId, TokenLogprob
from common.worker.attach_hub import AttachHub, RouterStream
from protos import worker_pb2


@pytest.fixture
def hub() -> AttachHub:
    return AttachHub()


def own(hub: AttachHub, request_id: str, router_id: str, choice_indices: tuple[int, ...] = (0,)) -> None:
    hub.own(LegKey(RequestId(request_id), 1), choice_indices, router_id)


def tokens(request_id: str, choice_index: int = 0, **changes: object) -> TokenOutput:
    fields: dict[str, object] = {"first_index": 0, "token_ids": (7,), **changes}
    return TokenOutput(request_id=RequestId(request_id), attempt=1, choice_index=choice_index, **fields)  # type: ignore[arg-type]


def received(stream: RouterStream) -> worker_pb2.StepOutput:
    message = stream.outgoing.get_nowait()
    step: worker_pb2.StepOutput = message.step
    return step


async def test_tokens_that_can_not_be_encoded_fail_their_choice_alone(hub: AttachHub) -> None:
    streams = [hub.attach(name) for name in ("one", "two")]
    own(hub, "poison", "one", choice_indices=(0, 1))
    own(hub, "fine", "one")
    own(hub, "elsewhere", "two")
    broken = TokenLogprob(token_id=-1, logprob=0.0, rank=1)
    failed = hub.deliver(
        [tokens("poison", 1, logprobs=(broken,)), tokens("poison", 0), tokens("fine"), tokens("elsewhere")],
        (),
        worker_pb2.LoadReport(),
        {},
    )
    assert [(end.request_id, end.choice_indices, end.status) for end in failed] == [("poison", (1,), Status.INTERNAL)]
    step = received(streams[0])
    assert [(output.request_id, output.choice_index) for output in step.outputs] == [("poison", 0), ("fine", 0)]
    (end,) = step.ends
    assert (end.request_id, list(end.choice_indices), end.status) == ("poison", [1], "INTERNAL")
    assert end.reason == worker_pb2.LEG_END_REASON_FAILED
    assert [output.request_id for output in received(streams[1]).outputs] == ["elsewhere"]
    # The failed choice is closed, its sibling is not.
    assert hub.num_legs == 3
    hub.deliver([tokens("poison", 0, first_index=1, finish_reason=FinishReason.STOP)], (), worker_pb2.LoadReport(), {})
    assert hub.num_legs == 2


async def test_an_error_that_quotes_anything_can_be_told(hub: AttachHub) -> None:
    stream = hub.attach("one")
    own(hub, "poison", "one")
    end = LegEnded(
        request_id=RequestId("poison"),
        attempt=1,
        choice_indices=(0,),
        reason=LegEndReason.FAILED,
        status=Status.INTERNAL,
        message="half a pair: \ud800, " + "x" * 10_000,
    )
    hub.deliver((), (end,), worker_pb2.LoadReport(), {})
    (told,) = received(stream).ends
    assert told.message.startswith("half a pair: ?, x")
    assert len(told.message) == 1000
