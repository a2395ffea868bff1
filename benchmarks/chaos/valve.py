"""One direction of a link between two processes: open, held, counted or throttled."""

from __future__ import annotations

import asyncio

THROTTLED_PIECE_BYTES = 2048


class Valve:
    """Shared by all connections of the link. Owned by the event loop.

    Bytes that may not pass wait, as they would on their way to a peer that can't be reached: nothing is lost, and
    nobody is told.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._bytes_left: int | None = None
        self._stops_at_empty = self._stopped = False
        self._bytes_per_s: float | None = None
        self._cut = False

    @property
    def is_cut(self) -> bool:
        return self._cut

    def open(self) -> None:
        """Everything passes."""
        self._set()

    def cut(self) -> None:
        """Nothing passes, not even the end of a connection."""
        self._set(cut=True)

    def let_bytes(self, num_bytes: int) -> None:
        """So many bytes pass yet."""
        self._set(bytes_left=num_bytes)

    def stop_at_empty_answer(self) -> None:
        """Everything passes until the first answer without content, which does not."""
        self._set(stops_at_empty=True)

    def throttle(self, bytes_per_s: float) -> None:
        self._set(bytes_per_s=bytes_per_s)

    async def take(self, data: bytes, *, is_empty_answer: bool = False) -> bytes:
        """Waits until some of `data` may pass, and returns as much of its beginning as may."""
        if self._stops_at_empty and is_empty_answer:
            self._stopped = True
        while self._cut or self._stopped or self._bytes_left == 0:
            self._changed.clear()
            await self._changed.wait()
        part = data
        if self._bytes_left is not None:
            part = data[: self._bytes_left]
            self._bytes_left -= len(part)
        if self._bytes_per_s is not None:
            part = data[:THROTTLED_PIECE_BYTES]
            await asyncio.sleep(len(part) / self._bytes_per_s)
        return part

    async def wait_not_cut(self) -> None:
        while self._cut:
            self._changed.clear()
            await self._changed.wait()

    def _set(
        self,
        *,
        cut: bool = False,
        bytes_left: int | None = None,
        stops_at_empty: bool = False,
        bytes_per_s: float | None = None,
    ) -> None:
        self._cut, self._stops_at_empty, self._stopped = cut, stops_at_empty, False
        self._bytes_left, self._bytes_per_s = bytes_left, bytes_per_s
        self._changed.set()
