"""Who gets which output: the attached routers, and the legs that each of them owns."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from common.engine.results import LegEnded, LegEndReason, TokenOutput
from common.errors import Status
from common.request import LegKey
from common.worker.step_codec import encode_end, encode_output
from protos import worker_pb2 as pb

logger = logging.getLogger(__name__)

# A router reads all the time: one that is so far behind is gone, and holding more for it helps nobody.
MAX_QUEUED_STEPS = 10_000


@dataclass(slots=True)
class _OwnedLeg:
    router_id: str
    open_choices: set[int]


@dataclass(slots=True)
class RouterStream:
    """One router's attached stream. `ended` is set when it must be closed, written out or not.

    `source` names it among the engine's callers; `num_refused` counts submits that never reached the engine.
    """

    router_id: str
    source: str
    num_refused: int = 0
    outgoing: asyncio.Queue[pb.AttachResponse] = field(default_factory=asyncio.Queue)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class AttachHub:
    """Owned by the event loop."""

    def __init__(self) -> None:
        self._streams: dict[str, RouterStream] = {}
        self._legs: dict[LegKey, _OwnedLeg] = {}
        self._numbers = itertools.count(1)

    def attach(self, router_id: str) -> RouterStream:
        """A router's new stream. An older one of the same router must have been detached."""
        assert router_id not in self._streams
        stream = self._streams[router_id] = RouterStream(router_id, f"{router_id}#{next(self._numbers)}")
        return stream

    def stream_of(self, router_id: str) -> RouterStream | None:
        return self._streams.get(router_id)

    def detach(self, stream: RouterStream) -> list[LegKey] | None:
        """The stream has ended: its router's legs, which must be cancelled now. None when it was detached before."""
        if self._streams.get(stream.router_id) is not stream:
            return None
        stream.ended.set()
        del self._streams[stream.router_id]
        orphans = [key for key, leg in self._legs.items() if leg.router_id == stream.router_id]
        for key in orphans:
            del self._legs[key]
        return orphans

    def is_attached(self, router_id: str) -> bool:
        return router_id in self._streams

    @property
    def num_legs(self) -> int:
        """Legs of which something is awaited yet."""
        return len(self._legs)

    def own(self, key: LegKey, choice_indices: Iterable[int], router_id: str) -> None:
        """The outputs of the leg's choices go to this router."""
        self._legs[key] = _OwnedLeg(router_id, set(choice_indices))

    def router_of(self, key: LegKey) -> str | None:
        """Whose leg it is; None when nothing more is awaited of it."""
        leg = self._legs.get(key)
        return None if leg is None else leg.router_id

    def keys(self) -> list[LegKey]:
        """Legs of which something is awaited yet."""
        return list(self._legs)

    @property
    def sources(self) -> set[str]:
        """The attached streams, as the engine counts them."""
        return {stream.source for stream in self._streams.values()}

    def source_of(self, key: LegKey) -> str | None:
        """The stream that a leg came by, as the engine counts it."""
        leg = self._legs.get(key)
        stream = None if leg is None else self._streams.get(leg.router_id)
        return None if stream is None else stream.source

    def disown(self, key: LegKey) -> None:
        """Nothing more will come of the leg. Idempotent."""
        self._legs.pop(key, None)

    def close_choices(self, key: LegKey, choice_indices: Iterable[int]) -> None:
        """Nothing more will come of these choices. Idempotent; the last one ends the leg."""
        leg = self._legs.get(key)
        if leg is not None:
            leg.open_choices.difference_update(choice_indices)
            if not leg.open_choices:
                del self._legs[key]

    def deliver(
        self,
        tokens: Iterable[TokenOutput],
        ends: Iterable[LegEnded],
        load: pb.LoadReport,
        tallies: Mapping[str, int],
    ) -> list[LegEnded]:
        """One StepOutput to each attached router: its legs' tokens and ends, and the load.

        `tallies` are the submits that the load counts, by the source of their stream. Returns the choices whose
        tokens can't be encoded: they are told as failed, and must be cancelled.
        """
        steps: dict[str, pb.StepOutput] = defaultdict(pb.StepOutput)
        failed = []
        for output in tokens:
            leg = self._legs.get(LegKey(output.request_id, output.attempt))
            if leg is None:
                continue
            try:
                steps[leg.router_id].outputs.append(encode_output(output))
            except Exception as error:
                logger.exception("tokens of request %s can't be sent", output.request_id)
                failed.append(_unsendable(output, error))
        ends = (*ends, *failed)
        for end in ends:
            leg = self._legs.get(LegKey(end.request_id, end.attempt))
            if leg is not None:
                steps[leg.router_id].ends.append(encode_end(end))
        for router_id, stream in self._streams.items():
            step = steps[router_id]
            step.load.CopyFrom(load)
            step.load.num_submits_taken = tallies.get(stream.source, 0) + stream.num_refused
            self._send(router_id, pb.AttachResponse(step=step))
        self._close_ended(tokens, ends)
        return failed

    def send_end(self, key: LegKey, end: pb.LegEnd) -> None:
        """Tells a leg's router, outside of any step, how the leg ended, and forgets the leg."""
        self.tell_end(key, end)
        self.disown(key)

    def tell_end(self, key: LegKey, end: pb.LegEnd) -> None:
        """Tells a leg's router, outside of any step, how some of its choices ended."""
        leg = self._legs.get(key)
        if leg is not None:
            self._send(leg.router_id, pb.AttachResponse(step=pb.StepOutput(ends=[end])))
            self.close_choices(key, end.choice_indices)

    def refuse(self, stream: RouterStream, key: LegKey, end: pb.LegEnd) -> None:
        """Tells a stream that a leg was not taken, known here or not."""
        self._legs.pop(key, None)
        self._send(stream.router_id, pb.AttachResponse(step=pb.StepOutput(ends=[end])))

    def announce(self, registration: pb.WorkerRegistration) -> None:
        """Tells every router that this worker's registration has changed."""
        for router_id in self._streams:
            self._send(router_id, pb.AttachResponse(hello=registration))

    def _send(self, router_id: str, message: pb.AttachResponse) -> None:
        stream = self._streams.get(router_id)
        if stream is None or stream.ended.is_set():
            return
        if stream.outgoing.qsize() >= MAX_QUEUED_STEPS:
            logger.error("router %s reads nothing any more: its stream is closed", router_id)
            stream.ended.set()
            return
        stream.outgoing.put_nowait(message)

    def _close_ended(self, tokens: Iterable[TokenOutput], ends: Iterable[LegEnded]) -> None:
        for output in tokens:
            if output.finish_reason is not None:
                self.close_choices(LegKey(output.request_id, output.attempt), (output.choice_index,))
        for end in ends:
            self.close_choices(LegKey(end.request_id, end.attempt), end.choice_indices)


def _unsendable(output: TokenOutput, error: Exception) -> LegEnded:
    return LegEnded(
        request_id=output.request_id,
        attempt=output.attempt,
        choice_indices=(output.choice_index,),
        reason=LegEndReason.FAILED,
        status=Status.INTERNAL,
        message=f"its tokens can't be sent: {type(error).__name__}: {error}",
    )
