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
        self._calls_left: int | None = None
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

    def let_calls(self, num_calls: int) -> None:
        """Everything passes until so many calls have ended."""
        self._set(calls_left=num_calls)

    def throttle(self, bytes_per_s: float) -> None:
        self._set(bytes_per_s=bytes_per_s)

    async def take(self, data: bytes, *, ends_call: bool) -> bytes:
        """Waits until some of `data` may pass, and returns as much of its beginning as may."""
        while self._cut or self._bytes_left == 0 or self._calls_left == 0:
            self._changed.clear()
            await self._changed.wait()
        part = data
        if self._bytes_left is not None:
            part = data[: self._bytes_left]
            self._bytes_left -= len(part)
        if self._calls_left is not None and ends_call:
            self._calls_left -= 1
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
        calls_left: int | None = None,
        bytes_per_s: float | None = None,
    ) -> None:
        self._cut = cut
        self._bytes_left, self._calls_left, self._bytes_per_s = bytes_left, calls_left, bytes_per_s
        self._changed.set()
