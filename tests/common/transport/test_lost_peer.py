"""One of two real processes is killed with a transfer under way: the other goes on, and nothing is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import signal
import sys
import time
from pathlib import Path

import pytest

from benchmarks.transfer.child import SinkChild
from benchmarks.transfer.pools import make_pool
from common.config import TransferConfig
from common.errors import SlipstreamError, UnavailableError
from common.kv.ticket import BlockRef, Drop
from common.transport.channels import PeerChannels
from common.transport.endpoints import make_source
from common.transport.push_target import PushTarget
from common.transport.sender_factory import SenderFactory
from common.transport.transfer_counters import TransferCounters
from common.worker.pool_blocks import PoolBlocks
from tests.support.transfer import GRPC, ISLAND, SHARED_MEMORY, open_transfer, rings_in, small_spec

NUM_BLOCKS = 8
EVERY = pytest.mark.parametrize("config", [GRPC, SHARED_MEMORY, ISLAND], ids=["grpc", "shm", "island"])


def fields(config: TransferConfig) -> dict[str, object]:
    return dataclasses.asdict(config)


async def start_sink(config: TransferConfig) -> SinkChild:
    child, _ = await SinkChild.start(NUM_BLOCKS, {"sink": fields(config)})
    return child


async def target_of(child: SinkChild) -> PushTarget:
    return PushTarget.from_wire(child.decode_target((await child.ask("target", sink="sink"))["target"]))


class Source:
    """This process as a source of the benchmark's blocks."""

    def __init__(self, config: TransferConfig) -> None:
        self.channels = PeerChannels()
        self.counters = TransferCounters()
        self.senders: SenderFactory = make_source(
            config, PoolBlocks(make_pool(NUM_BLOCKS, seed=0)), self.channels, self.counters
        )

    async def close(self) -> None:
        await self.senders.close()
        await self.channels.close()


@EVERY
async def test_a_killed_sink_fails_the_push_and_stops_nothing(config: TransferConfig) -> None:
    child, source = await start_sink(config), Source(config)
    try:
        sender = source.senders.open(await target_of(child))
        await sender.push([(BlockRef(0, 0), 0)])
        assert sender.transport == config.kv_transports[0]
        await child.kill()
        started_s = time.monotonic()
        with pytest.raises(UnavailableError):
            await sender.push([(BlockRef(0, index), index) for index in range(1, NUM_BLOCKS)])
            await sender.commit(num_computed_tokens=16 * NUM_BLOCKS, first_tokens=(), attempt=1)
        assert time.monotonic() - started_s < 10
        sender.close()
        if source.senders.transports.pairs is not None:
            async with asyncio.timeout(10):
                while source.senders.transports.pairs.num_pairs:
                    await asyncio.sleep(0.02)
    finally:
        await source.close()


@EVERY
async def test_a_killed_source_ends_its_stream_and_leaves_no_file(config: TransferConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(config, shm_directory=str(tmp_path))
    async with open_transfer(small_spec(), config) as transfer:
        target = transfer.target((4, 5), (False, False))
        source = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.source_program",
            json.dumps(fields(config)),
            transfer.encode(target).SerializeToString().hex(),
            stdout=asyncio.subprocess.PIPE,
        )
        assert source.stdout is not None
        assert await source.stdout.readline() == f"PUSHED {config.kv_transports[0]}\n".encode()
        async with asyncio.timeout(10):
            while transfer.blocks.block_bytes(0, 4) != transfer.source.block_bytes(0, 20):
                await asyncio.sleep(0.01)
        assert transfer.sink.table.get(target.ticket_id).open_streams
        source.send_signal(signal.SIGKILL)
        await source.wait()
        async with asyncio.timeout(10):
            while transfer.sink.table.get(target.ticket_id).open_streams or transfer.num_pairs:
                await asyncio.sleep(0.01)
        transfer.sink.table.abort(target.ticket_id, "its router saw the source die", transfer.sink.now())
        transfer.sink.settle()
        assert [type(action) for action in transfer.actions] == [Drop]
        assert not rings_in(tmp_path)


async def test_a_frozen_peer_costs_the_request_its_transport_within_the_time_limit() -> None:
    child, source = await start_sink(ISLAND), Source(ISLAND)
    try:
        sender = source.senders.open(await target_of(child))
        await sender.push([(BlockRef(0, 0), 0)])
        child.send_signal(signal.SIGSTOP)
        started_s = time.monotonic()
        # More than what sockets hold, so that the push can't end without the peer.
        pushing = asyncio.create_task(sender.push([(BlockRef(0, index), index) for index in range(1, NUM_BLOCKS)]))
        longest_s = 0.0
        while not pushing.done():
            before_s = time.monotonic()
            await asyncio.sleep(0.01)
            longest_s = max(longest_s, time.monotonic() - before_s)
        with pytest.raises(SlipstreamError):
            pushing.result()
        assert time.monotonic() - started_s < 25
        assert longest_s < 1.0  # the event loop was there all the time
    finally:
        child.send_signal(signal.SIGCONT)
        await source.close()
        await child.kill()


async def test_pairs_above_the_cap_make_room_or_fall_back() -> None:
    config = dataclasses.replace(ISLAND, max_island_peers=1)
    children = [await start_sink(ISLAND) for _ in range(2)]
    source = Source(config)
    pairs = source.senders.transports.pairs
    assert pairs is not None
    try:
        first = source.senders.open(await target_of(children[0]))
        await first.push([(BlockRef(0, 0), 0)])
        second = source.senders.open(await target_of(children[1]))
        await second.push([(BlockRef(0, 0), 0)])
        assert (first.transport, second.transport) == ("island", "grpc")  # the only pair is in use
        assert source.counters.fallbacks == {"island": 1}
        for sender in (first, second):
            await sender.push([(BlockRef(0, index), index) for index in range(1, NUM_BLOCKS)])
            await sender.commit(num_computed_tokens=16 * NUM_BLOCKS, first_tokens=(), attempt=1)
        third = source.senders.open(await target_of(children[1]))
        await third.push([(BlockRef(0, 0), 0)])
        assert third.transport == "island"  # the first one's pair is idle, and made room
        assert pairs.num_pairs == 1
        third.close()
    finally:
        await source.close()
        for child in children:
            await child.stop()
