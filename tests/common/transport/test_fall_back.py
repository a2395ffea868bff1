"""A transport that fails a request is given up for that request: gRPC sends its blocks, and it is counted."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from common.config import TransferConfig
from common.errors import StaleTicketError
from common.kv.first_token import FirstToken
from common.kv.ticket import Admit, BlockRef
from common.transport.announced_arrivals import AnnouncedArrivals
from common.transport.ticket_sender import TicketSender
from tests.support.transfer import ATTEMPT, GRPC, ISLAND, SHARED_MEMORY, Transfer, open_transfer, rings_in, small_spec

FIRST_TOKENS = (FirstToken(choice_index=0, token_id=5, finished=False),)
FAST = pytest.mark.parametrize("config", [SHARED_MEMORY, ISLAND], ids=["shm", "island"])


async def send(transfer: Transfer, num_blocks: int = 3) -> TicketSender:
    """A whole transfer, in two pushes, and what arrived."""
    target = transfer.target(tuple(range(4, 4 + num_blocks)), (False,) * num_blocks)
    sender = transfer.sender(target)
    await sender.push([(BlockRef(0, 0), 20)])
    await sender.push([(BlockRef(0, index), 20 + index) for index in range(1, num_blocks)])
    await sender.commit(num_computed_tokens=16 * num_blocks, first_tokens=FIRST_TOKENS, attempt=ATTEMPT)
    assert (transfer.blocks.array[4 : 4 + num_blocks] == transfer.source.array[20 : 20 + num_blocks]).all()
    assert [type(action) for action in transfer.actions] == [Admit]
    transfer.actions.clear()
    return sender


async def test_containers_that_share_a_kernel_but_no_memory_fall_back_once(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(SHARED_MEMORY, shm_directory=str(tmp_path))
    async with open_transfer(small_spec(), SHARED_MEMORY, source_config=elsewhere) as transfer:
        assert (await send(transfer)).transport == "grpc"
        assert transfer.counters.fallbacks == {"shm": 1}
        assert (await send(transfer)).transport == "grpc"  # the sink is not asked again so soon
        assert transfer.counters.fallbacks == {"shm": 1}
        assert not rings_in(tmp_path)


async def test_a_worker_of_another_host_is_not_tried() -> None:
    async with open_transfer(small_spec(), SHARED_MEMORY) as transfer:
        target = transfer.target((4,), (False,))
        other = dataclasses.replace(target, sinks=(dataclasses.replace(target.sinks[0], host_id="another"),))
        assert transfer.sender(other).transport == "grpc"


async def test_a_worker_of_another_island_is_not_tried() -> None:
    elsewhere = dataclasses.replace(ISLAND, island="another")
    async with open_transfer(small_spec(), ISLAND, source_config=elsewhere) as transfer:
        assert (await send(transfer)).transport == "grpc"
        assert not transfer.counters.fallbacks


async def test_a_sink_that_offers_grpc_alone_gets_grpc() -> None:
    async with open_transfer(small_spec(), GRPC, source_config=SHARED_MEMORY) as transfer:
        assert (await send(transfer)).transport == "grpc"
        assert not transfer.counters.fallbacks


async def test_a_ring_that_the_sink_has_dropped_is_made_anew() -> None:
    async with open_transfer(small_spec(), SHARED_MEMORY) as transfer:
        await send(transfer)
        shared_memory = transfer.receiver._announced._openers["shared_memory"].__self__  # type: ignore[attr-defined]
        assert len(shared_memory._idle) == 1
        shared_memory._idle.clear()
        assert (await send(transfer)).transport == "shm"
        assert not transfer.counters.fallbacks


@FAST
async def test_what_breaks_in_the_midst_is_sent_again_whole(
    config: TransferConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_transfer(small_spec(), config) as transfer:
        target = transfer.target((4, 5, 6), (False,) * 3)
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 0), 20)])
        assert sender.transport == config.kv_transports[0]
        break_lane(transfer, monkeypatch)
        await sender.push([(BlockRef(0, 1), 21), (BlockRef(0, 2), 22)])
        await sender.commit(num_computed_tokens=48, first_tokens=FIRST_TOKENS, attempt=ATTEMPT)
        assert sender.transport == "grpc"
        assert transfer.counters.fallbacks == {config.kv_transports[0]: 1}
        assert (transfer.blocks.array[4:7] == transfer.source.array[20:23]).all()
        assert sender.num_sent_blocks == transfer.counters.received_blocks == 3


@FAST
async def test_an_aborted_ticket_is_not_sent_again(config: TransferConfig) -> None:
    async with open_transfer(small_spec(), config) as transfer:
        target = transfer.target((4, 5), (False, False))
        sender = transfer.sender(target)
        await sender.push([(BlockRef(0, 0), 20)])
        transfer.sink.table.abort(target.ticket_id, "test", transfer.sink.now())
        transfer.sink.settle()
        with pytest.raises(StaleTicketError):
            await sender.push([(BlockRef(0, 1), 21)])
            await sender.commit(num_computed_tokens=32, first_tokens=FIRST_TOKENS, attempt=ATTEMPT)
        sender.close()
        assert not transfer.counters.fallbacks
        assert not transfer.sink.table.get(target.ticket_id).open_streams


def break_lane(transfer: Transfer, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the sink takes nothing that is announced."""
    from common.errors import UnavailableError
    from common.transport import pair_host, shared_memory_lane

    assert isinstance(transfer.receiver._announced, AnnouncedArrivals)

    def refuse(*arguments: object) -> None:
        raise UnavailableError("broken by the test")

    monkeypatch.setattr(shared_memory_lane.SharedMemoryTaker, "take", refuse)
    monkeypatch.setattr(pair_host.PairTaker, "take", refuse)
