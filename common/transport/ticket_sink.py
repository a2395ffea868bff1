"""Tickets and the engine kept in step: carries out what the ticket machine asks for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from common.errors import StaleTicketError
from common.kv.ticket import Drop, TicketAction
from common.kv.ticket_table import TicketTable

ActionHandler = Callable[[TicketAction], Awaitable[None] | None]


class TicketSink:
    """The table on the event loop, with a handler for its actions, which run in order.

    The handler starts each action at once and may return something to wait for.
    """

    def __init__(self, table: TicketTable, handle: ActionHandler) -> None:
        self.table = table
        self._handle = handle
        self._writers: dict[str, set[asyncio.Task[object]]] = {}

    @staticmethod
    def now() -> float:
        """Seconds on the clock that the table's leases run by."""
        return time.monotonic()

    def settle(self) -> list[Awaitable[None]]:
        """Starts every queued action; call it after each call to the table, also when that raised."""
        waiting = []
        for action in self.table.drain_actions():
            started = self._handle(action)
            if started is not None:
                waiting.append(started)
            if isinstance(action, Drop) and action.quarantine:
                # A source that hangs would never end its stream, and the blocks stay in quarantine until then.
                for writer in self._writers.get(action.ticket_id, set()) - {asyncio.current_task()}:
                    writer.cancel()
        return waiting

    @contextmanager
    def stream(self, ticket_id: str, *, generation: int, rank: int) -> Iterator[int]:
        """A source rank's stream, written by the current task, which is cancelled when the ticket is dropped.

        Yields the stream id. Left only when nothing is written through it any more. Raises StaleTicketError when the
        ticket has ended, before or meanwhile.
        """
        stream_id = self.table.open_stream(ticket_id, generation=generation, rank=rank, now=self.now())
        task = asyncio.current_task()
        assert task is not None
        writers = self._writers.setdefault(ticket_id, set())
        writers.add(task)
        try:
            yield stream_id
        except asyncio.CancelledError:
            ticket = self.table.get(ticket_id)
            if ticket.state.is_open:
                raise
            task.uncancel()
            raise StaleTicketError(f"the ticket has ended ({ticket.state}): {ticket.end_message}") from None
        finally:
            writers.discard(task)
            if not writers:
                self._writers.pop(ticket_id, None)
            self.table.close_stream(ticket_id, stream_id, self.now())
            self.settle()
