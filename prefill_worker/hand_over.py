"""The prefill role: legs run to their first tokens while their blocks move to where they will be decoded."""

from __future__ import annotations

from common.errors import InvalidRequestError, StaleTicketError
from common.request import Leg, LegKey
from common.transport.push_target import PushTarget
from common.worker.departures import Departures
from common.worker.worker import Worker
from protos import transfer_pb2, worker_pb2


class HandOver:
    """A LegTaker. Owned by the event loop."""

    def __init__(self, worker: Worker, departures: Departures) -> None:
        self._worker = worker
        self._departures = departures

    def submit(self, leg: Leg, target: transfer_pb2.PushTarget | None) -> None:
        """Without a target the leg runs here to its end, which is meant for one token."""
        if target is None:
            self._worker.submit(leg, hand_over=False)
            return
        decoded = PushTarget.from_wire(target)
        if leg.key in self._departures:
            raise InvalidRequestError("attempt", f"attempt {leg.attempt} of {leg.request_id} is here already")
        self._worker.submit(
            leg, hand_over=True, on_refused=lambda: self._departures.give_up(leg.key, "the engine refused it")
        )
        self._departures.open(leg, decoded)

    def cancel(self, key: LegKey, choice_indices: tuple[int, ...]) -> None:
        self._worker.cancel(key, choice_indices)
        if not choice_indices:
            self._departures.give_up(key, "cancelled")

    def keep(self, key: LegKey, choice_index: int) -> None:
        """Nothing decodes here: it is left alone."""

    def move(self, move: worker_pb2.Move) -> None:
        raise StaleTicketError("a prefill worker keeps no choices")

    def router_gone(self, router_id: str, orphans: list[LegKey]) -> None:
        for key in orphans:
            self.cancel(key, ())
