"""A hand-over that breaks is told to the router, whatever broke it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from common.engine.results import HandedOver
from common.errors import StaleTicketError
from common.kv.first_token import FirstToken
from common.kv.sender import KVSender
from common.kv.ticket import BlockRef
from common.request import RequestId
from common.transport.push_target import PushTarget, SinkEndpoint
from common.worker.attach_hub import LegKey
from prefill_worker.push_task import PushTask
from protos import worker_pb2


class BrokenSender:
    """A KVSender whose commit raises."""

    num_sent_bytes = num_sent_blocks = 0

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.failures: list[str] = []

    async def push(self, blocks: Sequence[tuple[BlockRef, int]]) -> None: ...

    async def commit(self, *, num_computed_tokens: int, first_tokens: Sequence[FirstToken], attempt: int) -> None:
        raise self._error

    async def fail(self, reason: str) -> None:
        self.failures.append(reason)


@pytest.mark.parametrize(
    ("error", "status"), [(StaleTicketError("stale"), "FAILED_PRECONDITION"), (KeyError("bug"), "INTERNAL")]
)
async def test_what_broke_is_told(error: Exception, status: str) -> None:
    ends: list[worker_pb2.LegEnd | None] = []

    def on_end(key: LegKey, sender: KVSender, end: worker_pb2.LegEnd | None) -> None:
        ends.append(end)

    sender = BrokenSender(error)
    target = PushTarget(ticket_id="ticket", generation=1, sinks=(SinkEndpoint(address="127.0.0.1:1"),), maps=())
    request_id = RequestId("r")
    push = PushTask(LegKey(request_id, 1), (0,), target, sender, on_end)
    push.handed_over(
        HandedOver(request_id=request_id, attempt=1, choice_indices=(0,), num_computed_tokens=1, first_tokens=())
    )
    await asyncio.wait_for(push.task, 5)
    (end,) = ends
    assert end is not None
    assert end.reason == worker_pb2.LEG_END_REASON_TRANSFER_FAILED
    assert end.status == status
    assert len(sender.failures) == 1
