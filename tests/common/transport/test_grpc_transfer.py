"""Blocks over a real gRPC stream, from pool to pool."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from importlib.util import find_spec

import grpc
import pytest

from common.config import TransferConfig
from common.errors import StaleTicketError, TransferError
from common.kv.first_token import FirstToken
from common.kv.sender import KVSender
from common.kv.ticket import Admit, BlockRef, Drop, EndQuarantine
from common.transport.frame import encode_frame
from common.transport.grpc_stream import PUSH_METHOD
from common.transport.sink_control import SinkControl
from protos import transfer_pb2 as pb
from tests.support.transfer import ATTEMPT, GRPC, ISLAND, NIXL, SHARED_MEMORY, open_transfer, small_spec

needs_nixl = pytest.mark.skipif(find_spec("nixl") is None, reason="the extra nixl is not installed")
FIRST_TOKENS = (FirstToken(choice_index=0, token_id=5, finished=False),)


async def commit(sender: KVSender, num_blocks: int) -> None:
    await sender.commit(num_computed_tokens=16 * num_blocks, first_tokens=FIRST_TOKENS, attempt=ATTEMPT)


@pytest.mark.parametrize(
    "config", [GRPC, SHARED_MEMORY, ISLAND, pytest.param(NIXL, marks=needs_nixl)], ids=["grpc", "shm", "island", "nixl"]
)
@pytest.mark.parametrize("head_dim", [64, 16384], ids=["several blocks a batch", "several batches a block"])
async def test_missing_blocks_arrive_where_the_map_says(head_dim: int, config: TransferConfig) -> None:
    spec = small_spec(head_dim)
    async with open_transfer(spec, config) as transfer:
        target = transfer.target(block_ids=(9, 4, 7), present=(True, False, False))
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 1), 20)])
        await sender.push([(BlockRef(0, 2), 3)])
        await commit(sender, 3)
        assert (transfer.blocks.array[4] == transfer.source.array[20]).all()
        assert (transfer.blocks.array[7] == transfer.source.array[3]).all()
        assert not transfer.blocks.array[9].any()
        assert [type(action) for action in transfer.actions] == [Admit]
        assert sender.num_sent_blocks == transfer.counters.received_blocks == 2
        assert sender.transport == config.kv_transports[0]
        assert sender.num_sent_bytes == transfer.counters.received_bytes == 2 * spec.groups[0].bytes_per_block


@pytest.mark.parametrize("checksum_of_the_source", ["none", "xxh3_64"])
@pytest.mark.parametrize("transports", [("grpc",), ("shm", "grpc")], ids=["grpc", "shm"])
async def test_a_sink_that_asks_for_no_checksums_hashes_no_arriving_block(
    checksum_of_the_source: str, transports: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TransferConfig(kv_transports=transports, kv_checksum="none")
    source_config = replace(config, kv_checksum=checksum_of_the_source)
    async with open_transfer(small_spec(), config, source_config=source_config) as transfer:
        monkeypatch.delattr("common.transport.arriving_blocks.xxhash")
        sender = transfer.sender(transfer.target(block_ids=(9, 4), present=(False, False)))
        await sender.push([(BlockRef(0, 0), 20), (BlockRef(0, 1), 3)])
        await commit(sender, 2)
        assert (transfer.blocks.array[[9, 4]] == transfer.source.array[[20, 3]]).all()
        assert sender.transport == transports[0]


async def test_nothing_to_send_needs_a_commit_only() -> None:
    async with open_transfer(small_spec()) as transfer:
        sender = transfer.sender(transfer.target(block_ids=(1,), present=(True,)))
        await commit(sender, 1)
        assert [type(action) for action in transfer.actions] == [Admit]


async def test_checksums_of_a_source_that_died_are_forgotten() -> None:
    async with open_transfer(small_spec()) as transfer:
        dying = transfer.sender(target := transfer.target(block_ids=(4,), present=(False,)))
        await dying.push([(BlockRef(0, 0), 20)])
        await dying._stream.finish()
        assert list(transfer.receiver._blocks._running) == [target.ticket_id]
        transfer.sink.table.abort(target.ticket_id, "its router saw the source die", transfer.sink.now())
        transfer.sink.settle()
        await commit(transfer.sender(transfer.target(block_ids=(1,), present=(True,))), 1)
        assert not transfer.receiver._blocks._running


async def test_flipped_byte_on_the_wire_is_refused() -> None:
    async with open_transfer(small_spec()) as transfer:
        target = transfer.target(block_ids=(4,), present=(False,))
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 0), 20)])
        # A push has returned when its frames are under way: the two streams have no common order.
        async with asyncio.timeout(10.0):
            while transfer.blocks.block_bytes(0, 4) != transfer.source.block_bytes(0, 20):
                await asyncio.sleep(0.001)
        # The same block once more over a stream of its own, with one bit changed on the way.
        data = bytearray(transfer.source.block_bytes(0, 20))
        data[1000] ^= 1
        header = pb.PushHeader(
            ticket_id=target.ticket_id,
            generation=target.generation,
            extents=[pb.Extent(logical_block=0, offset=0, length=len(data))],
        )
        channel = transfer.channels.get(transfer.address)
        push = channel.stream_unary(PUSH_METHOD, response_deserializer=pb.PushResponse.FromString)

        async def frames():  # type: ignore[no-untyped-def]
            yield encode_frame(header, [memoryview(data)])

        await push(frames())
        with pytest.raises(TransferError, match="checksum"):
            await commit(sender, 1)
        assert [type(action) for action in transfer.actions] == [Drop]


async def test_block_that_is_here_already_is_refused() -> None:
    async with open_transfer(small_spec()) as transfer:
        sender = transfer.sender(transfer.target(block_ids=(4, 5), present=(True, False)))
        with pytest.raises(TransferError, match="already"):
            await sender.push([(BlockRef(0, 0), 20)])
            await commit(sender, 2)
        assert not transfer.blocks.array[4].any()


async def test_commit_without_all_blocks_is_refused() -> None:
    async with open_transfer(small_spec()) as transfer:
        sender = transfer.sender(transfer.target(block_ids=(4, 5), present=(False, False)))
        await sender.push([(BlockRef(0, 0), 20)])
        with pytest.raises(TransferError, match="blocks"):
            await commit(sender, 2)


async def test_aborted_blocks_are_quarantined_until_the_stream_has_ended() -> None:
    async with open_transfer(small_spec()) as transfer:
        target = transfer.target(block_ids=(4, 5), present=(False, False))
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 0), 20)])
        while not transfer.sink.table.get(target.ticket_id).open_streams:
            await asyncio.sleep(0.005)
        transfer.sink.table.abort(target.ticket_id, "test", transfer.sink.now())
        transfer.sink.settle()
        assert [action.quarantine for action in transfer.actions if isinstance(action, Drop)] == [True]
        with pytest.raises(StaleTicketError):
            await sender.push([(BlockRef(0, 1), 21)])
            await commit(sender, 2)
        assert [type(action) for action in transfer.actions] == [Drop, EndQuarantine]


async def test_fail_drops_the_ticket() -> None:
    async with open_transfer(small_spec()) as transfer:
        target = transfer.target(block_ids=(4,), present=(False,))
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 0), 20)])
        await SinkControl(transfer.channels).fail(target, "test")
        while len(transfer.actions) < 1 or transfer.sink.table.get(target.ticket_id).open_streams:
            await asyncio.sleep(0.005)
        assert isinstance(transfer.actions[0], Drop)


async def test_a_source_that_says_nothing_more_holds_no_blocks() -> None:
    async with open_transfer(small_spec()) as transfer:
        target = transfer.target(block_ids=(4, 5), present=(False, False))
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 0), 20)])  # and then it freezes: neither more bytes nor an end
        async with asyncio.timeout(5):
            while not transfer.sink.table.get(target.ticket_id).open_streams:
                await asyncio.sleep(0.005)
            transfer.sink.table.abort(target.ticket_id, "the router saw the source freeze", transfer.sink.now())
            transfer.sink.settle()
            while len(transfer.actions) < 2:
                await asyncio.sleep(0.005)
        assert [type(action) for action in transfer.actions] == [Drop, EndQuarantine]
        with pytest.raises(StaleTicketError, match="the router saw the source freeze"):
            await sender.push([(BlockRef(0, 1), 21)])
            await commit(sender, 2)


async def test_unknown_ticket_is_a_stale_ticket() -> None:
    async with open_transfer(small_spec()) as transfer:
        stub_channel = transfer.channels.get(transfer.address)
        commit_call = stub_channel.unary_unary(
            "/slipstream.v1.KvTransfer/Commit",
            request_serializer=pb.CommitRequest.SerializeToString,
            response_deserializer=pb.CommitResponse.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await commit_call(pb.CommitRequest(ticket_id="nobody's"))
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
