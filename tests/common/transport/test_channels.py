from __future__ import annotations

import grpc
import pytest

from common.transport.channels import UNUSED_S, PeerChannels

pytestmark = pytest.mark.asyncio


async def test_channels_to_peers_that_are_gone_do_not_add_up() -> None:
    now_s = 0.0
    channels = PeerChannels(clock=lambda: now_s)
    used = channels.get("127.0.0.1:1")
    for port in range(2, 50):
        now_s += UNUSED_S / 10
        assert channels.get("127.0.0.1:1") is used, "it is in use all the time"
        channels.get(f"127.0.0.1:{port}")
        assert len(channels) <= 12
    await channels.close()
    assert len(channels) == 0
    assert used.get_state() is grpc.ChannelConnectivity.SHUTDOWN
