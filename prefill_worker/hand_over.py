"""The prefill role: legs run to their first tokens while their blocks move to where they will be decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from common.errors import InvalidRequestError
from common.kv.sender import KVSender
from common.request import Leg
from common.transport.push_target import PushTarget
from common.worker.attach_hub import LegKey
from common.worker.engine_thread import StepReport
from common.worker.worker import Worker
from prefill_worker.push_task import PushTask
from protos import transfer_pb2, worker_pb2

CLOSE_S = 5.0


class HandOver:
    """A LegTaker and ReportListener. Owned by the event loop."""

    def __init__(self, worker: Worker, open_sender: Callable[[PushTarget], KVSender]) -> None:
        self._worker = worker
        self._open_sender = open_sender
        self._pushes: dict[LegKey, PushTask] = {}
        worker.add_listener(self)

    def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None:
        """Without a target the leg runs here to its end, which is meant for one token."""
        if target is None:
            self._worker.submit(leg, hand_over=False)
            return
        decoded = PushTarget.from_wire(target)
        key = LegKey(leg.request_id, leg.attempt)
        if key in self._pushes:
            raise InvalidRequestError("attempt", f"attempt {leg.attempt} of {leg.request_id} is here already")
        self._worker.submit(leg, hand_over=True, on_refused=lambda: self._give_up(key, "refused"))
        sender = self._open_sender(decoded)
        self._pushes[key] = PushTask(key, leg.choice_indices, decoded, sender, self._on_push_end)

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...]) -> None:
        self._worker.cancel(key, choice_indices)
        if not choice_indices:
            self._give_up(key, "cancelled")

    def router_gone(self, router_id: str, orphans: list[LegKey]) -> None:
        for key in orphans:
            self.cancel(key, ())

    def on_report(self, report: StepReport) -> None:
        result = report.result
        for blocks in result.computed:
            push = self._pushes.get(LegKey(blocks.request_id, blocks.attempt))
            if push is not None:
                push.computed(blocks)
        for done in result.handed_over:
            push = self._pushes.get(LegKey(done.request_id, done.attempt))
            if push is not None:
                push.handed_over(done)
        for output in result.tokens:
            if output.finish_reason is not None:
                self._choices_ended(LegKey(output.request_id, output.attempt), (output.choice_index,))
        for end in result.ends:
            self._choices_ended(LegKey(end.request_id, end.attempt), end.choice_indices)

    async def close(self) -> None:
        """Lets hand-overs under way finish, for a while, and gives up the others."""
        if self._pushes:
            await asyncio.wait([push.task for push in self._pushes.values()], timeout=CLOSE_S)
        tasks = [push.task for push in self._pushes.values()]
        for push in list(self._pushes.values()):
            push.give_up("the prefill worker stops")
        await asyncio.gather(*tasks, return_exceptions=True)

    def _choices_ended(self, key: LegKey, choice_indices: tuple[int, ...]) -> None:
        push = self._pushes.get(key)
        if push is not None:
            push.choices_ended(choice_indices)

    def _give_up(self, key: LegKey, reason: str) -> None:
        push = self._pushes.get(key)
        if push is not None:
            push.give_up(reason)

    def _on_push_end(self, key: LegKey, sender: KVSender, end: worker_pb2.LegEnd | None) -> None:
        del self._pushes[key]
        counters = self._worker.counters
        counters.sent_bytes += sender.num_sent_bytes
        counters.sent_blocks += sender.num_sent_blocks
        if end is None or end.reason != worker_pb2.LEG_END_REASON_HANDED_OVER:
            self._worker.cancel(key)
        self._worker.engine.post(lambda engine: engine.release_lease(key.request_id, key.attempt))
        if end is None:
            self._worker.hub.disown(key)  # its router has been told of each choice, or has given it up
        else:
            self._worker.hub.send_end(key, end)
