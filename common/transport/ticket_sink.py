"""Tickets and the engine kept in step: carries out what the ticket machine asks for."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from common.kv.ticket import TicketAction
from common.kv.ticket_table import TicketTable

ActionHandler = Callable[[TicketAction], Awaitable[None] | None]


class TicketSink:
    """The table on the event loop, with a handler for its actions, which run in order.

    The handler starts each action at once and may return something to wait for.
    """

    def __init__(self, table: TicketTable, handle: ActionHandler) -> None:
        self.table = table
        self._handle = handle

    @staticmethod
    def now() -> float:
        """Seconds on the clock that the table's leases run by."""
        return time.monotonic()

    def settle(self) -> list[Awaitable[None]]:
        """Starts every queued action; call it after each call to the table, also when that raised."""
        started = [self._handle(action) for action in self.table.drain_actions()]
        return [waiting for waiting in started if waiting is not None]
