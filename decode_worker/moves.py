"""Choices that leave this worker with their KV: kept when their router asks for it, then sent where it says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from common.engine.results import KeptChoice
from common.errors import StaleTicketError
from common.request import LegKey, RequestId
from common.transport.push_target import PushTarget
from common.worker.departures import Departures, Lease
from common.worker.worker import Worker
from protos import worker_pb2


@dataclass(frozen=True, slots=True)
class _Held:
    router_id: str
    choice: KeptChoice

    @property
    def lease(self) -> Lease:
        return Lease(self.choice.leg.key, self.choice.leg.choice_indices)


class Moves:
    """Owned by the event loop.

    What is kept holds blocks as long as its router is attached and has not moved or cancelled it: like a ticket.
    """

    def __init__(self, worker: Worker, departures: Departures) -> None:
        self._worker = worker
        self._departures = departures
        self._held: dict[tuple[LegKey, int], _Held] = {}
        # Choices that the engine is asked to keep, and whether they are wanted yet.
        self._asked: dict[tuple[LegKey, int], bool] = {}

    @property
    def is_idle(self) -> bool:
        """Nothing is kept, or being sent."""
        return not self._held and not self._asked and not self._departures.num_open

    def keep(self, key: LegKey, choice_index: int) -> None:
        """Tells the choice's router when it is kept; one that has ended, or is in its prompt, is left alone."""
        router_id = self._worker.hub.router_of(key)
        if router_id is None:
            return

        place = (key, choice_index)

        def kept(asked: asyncio.Future[KeptChoice | None]) -> None:
            wanted = self._asked.pop(place, False)
            choice = None if asked.cancelled() or asked.exception() is not None else asked.result()
            if choice is not None:
                self._hold(key, choice_index, _Held(router_id, choice), wanted=wanted)

        self._asked[place] = True
        asked = self._worker.engine.call(lambda engine: engine.keep(key.request_id, key.attempt, choice_index))
        asked.add_done_callback(kept)

    def move(self, move: worker_pb2.Move) -> None:
        """Sends what was kept. Raises StaleTicketError when it is not here any more."""
        request_id = RequestId(move.request_id)
        held = self._held.pop((LegKey(request_id, move.kept_attempt), move.choice_index), None)
        if held is None:
            raise StaleTicketError(f"choice {move.choice_index} of {request_id} is not kept here")
        try:
            target = PushTarget.from_wire(move.push_target)
            departure = self._departures.open(replace(held.choice.leg, attempt=move.attempt), target, held.lease)
        except BaseException:
            self._release(held)
            raise
        for blocks in held.choice.blocks:
            departure.computed(blocks)
        departure.handed_over(held.choice.handed_over)

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...]) -> None:
        """Of the attempt that was kept, or of the one that it moves as. Idempotent."""
        self._departures.give_up(key, "cancelled")
        for place in self._asked:
            if place[0] == key and (not choice_indices or place[1] in choice_indices):
                self._asked[place] = False  # the engine, which has stopped it by then, can't cancel it
        for place in [place for place in self._held if place[0] == key]:
            if not choice_indices or place[1] in choice_indices:
                self._release(self._held.pop(place))

    def router_gone(self, router_id: str) -> None:
        for place, held in list(self._held.items()):
            if held.router_id == router_id:
                del self._held[place]
                self._release(held)

    def _hold(self, key: LegKey, choice_index: int, held: _Held, *, wanted: bool) -> None:
        hub = self._worker.hub
        if not wanted or hub.router_of(key) != held.router_id:
            self._release(held)  # cancelled, or its router went away, while the engine was asked
            hub.close_choices(key, (choice_index,))
            return
        self._held[key, choice_index] = held
        end = worker_pb2.LegEnd(
            request_id=key.request_id,
            attempt=key.attempt,
            choice_indices=[choice_index],
            reason=worker_pb2.LEG_END_REASON_KEPT,
            num_output_tokens=len(held.choice.leg.output_token_ids) + 1,
        )
        hub.tell_end(key, end)

    def _release(self, held: _Held) -> None:
        lease = held.lease
        self._worker.engine.post(
            lambda engine: engine.release_lease(lease.key.request_id, lease.key.attempt, lease.choice_indices)
        )
