"""Channels to peers, made once each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc

from common.net.server import open_channel
from common.net.tls import TlsIdentity

# In a fleet whose workers come and go, addresses would add up. No call takes so long.
UNUSED_S = 600.0


class PeerChannels:
    """Owned by the event loop. Ask for the channel of each call: one that was not asked for in `UNUSED_S` seconds is
    closed when the next address comes."""

    def __init__(self, tls: TlsIdentity | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._tls = tls
        self._clock = clock
        self._channels: dict[str, grpc.aio.Channel] = {}  # longest unused first
        self._asked_s: dict[str, float] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._channels)

    def get(self, address: str) -> grpc.aio.Channel:
        now_s = self._clock()
        channel = self._channels.pop(address, None)
        if channel is None:
            self._close_unused(now_s)
            channel = open_channel(address, self._tls, bulk=True)
        self._channels[address] = channel
        self._asked_s[address] = now_s
        return channel

    async def close(self) -> None:
        await asyncio.gather(*self._closing, *(channel.close() for channel in self._channels.values()))
        self._channels.clear()
        self._asked_s.clear()

    def _close_unused(self, now_s: float) -> None:
        for address in list(self._channels):
            if now_s - self._asked_s[address] < UNUSED_S:
                break
            del self._asked_s[address]
            task = asyncio.ensure_future(self._channels.pop(address).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
