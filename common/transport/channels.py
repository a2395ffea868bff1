"""Channels to peers, made once each."""

from __future__ import annotations

import asyncio

import grpc

from common.net.server import open_channel
from common.net.tls import TlsIdentity


class PeerChannels:
    """Owned by the event loop."""

    def __init__(self, tls: TlsIdentity | None = None) -> None:
        self._tls = tls
        self._channels: dict[str, grpc.aio.Channel] = {}

    def get(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address, self._tls, bulk=True)
        return channel

    async def close(self) -> None:
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        self._channels.clear()
