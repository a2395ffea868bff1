"""What a router gets for its Reserve."""

from __future__ import annotations

from dataclasses import dataclass

from common.engine.results import Reservation
from common.kv.ticket import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    ticket: Ticket
    generation: int
    reservation: Reservation
