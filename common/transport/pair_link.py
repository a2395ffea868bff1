"""A group of two and the Pair call that it lives by: the same at both ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import torch

from common.errors import UnavailableError
from common.transport.pair import FORM_TIMEOUT_S, MARGIN_S, OPERATION_TIMEOUT_S, Pair
from common.transport.pair_store import PairStore
from protos import transfer_pb2 as pb


class PairLink:
    """Owned by the event loop. `wrap` makes the call's message of a store entry.

    The group is closed when the call ends, and the call when the group is closed.
    """

    def __init__(
        self,
        rank: int,
        device: torch.device,
        local_address: str,
        wrap: Callable[[pb.StoreEntry], Any],
        timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._wrap = wrap
        self._outgoing: asyncio.Queue[Any] = asyncio.Queue()
        self._closed = asyncio.Event()
        self.store = PairStore(self._send_entry, FORM_TIMEOUT_S)
        self.pair = Pair(rank, self.store, device, local_address, self._tell_closed, timeout_s)
        self.num_users = 0
        # Held by the stream whose batches are on their way: what comes is told apart by its order alone.
        self.turn = asyncio.Lock()

    def say(self, message: Any) -> None:
        self._outgoing.put_nowait(message)

    async def form(self) -> None:
        """Raises UnavailableError."""
        try:
            async with asyncio.timeout(FORM_TIMEOUT_S + MARGIN_S):
                await asyncio.wrap_future(self.pair.form())
        except TimeoutError:
            self.pair.close("it was not formed in time")
            raise UnavailableError("island: no group of two was formed in time") from None

    async def exchange(
        self,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[Any], Awaitable[None]],
        hear: Callable[[Any], None],
    ) -> None:
        """Until the call or the group ends; `hear` gets what is no store entry. Closes both."""
        tasks = [
            asyncio.ensure_future(part) for part in (self._write(write), self._read(read, hear), self._closed.wait())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.pair.close("the peer has gone")
            await asyncio.to_thread(self.pair.join)

    async def _write(self, write: Callable[[Any], Awaitable[None]]) -> None:
        while True:
            await write(await self._outgoing.get())

    async def _read(self, read: Callable[[], Awaitable[Any]], hear: Callable[[Any], None]) -> None:
        while (message := await read()) is not grpc.aio.EOF:
            if message.WhichOneof("kind") == "entry":
                self.store.put(message.entry.key, message.entry.value)
            else:
                hear(message)

    def _send_entry(self, key: str, value: bytes) -> None:
        message = self._wrap(pb.StoreEntry(key=key, value=value))
        self._loop.call_soon_threadsafe(self.say, message)

    def _tell_closed(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended first
            self._loop.call_soon_threadsafe(self._closed.set)
