"""A sender that says what it likes writes to no block but its own ticket's, and harms no other transfer.

Each attack is a transfer as it should be, with a few things changed: so it gets as far as a stream that writes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.kv.ticket import BlockRef, TicketState
from common.net.server import open_channel
from common.transport.frame import encode_frame
from common.transport.push_target import PushTarget
from protos import transfer_pb2 as pb
from tests.support.transfer import ATTEMPT, Transfer, open_transfer, small_spec

SPEC = small_spec()
BLOCK_BYTES = SPEC.groups[0].bytes_per_block
CALL_TIMEOUT_S = 5.0
# gRPC's own word for a write that met the end of the stream: it says nothing of why the sink ended it.
MET_THE_END = "Internal error from Core"
# What a peer may be told that did what nobody should: never a fault of ours.
REFUSALS = {grpc.StatusCode.DATA_LOSS, grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT}
NUM_BLOCKS_SENT = 3
OWN_BLOCKS, VICTIM_BLOCKS = (10, 11, 12, 13), (20, 21, 22, 23)
PRESENT = (True, False, False, False)

NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 7, 2**31 - 1, 2**31, 2**32 - 1])
SIZES = st.sampled_from([0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2**31, 2**32, 2**63, 2**64 - 1])


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is not as it should be. `position` says in which frame, extent, block or byte."""

    what: str
    position: int
    value: Any


def changes(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Change]]:
    one = st.one_of([st.builds(Change, st.just(what), st.integers(0, 500), value) for what, value in values.items()])
    return st.lists(one, max_size=3)


FRAME_CHANGES = changes(
    ticket=st.sampled_from(["victim", "ended", "committed", "unknown", ""]),
    generation=NUMBERS,
    rank=NUMBERS,
    group_id=NUMBERS,
    logical_block=NUMBERS,
    offset=SIZES,
    length=SIZES,
    more_payload=st.integers(1, 2 * BLOCK_BYTES),
    less_payload=st.integers(1, 2 * BLOCK_BYTES),
    cut=st.integers(0, 2**20),
    flip=st.integers(0, 2**10),
    again=st.none(),
    left_out=st.none(),
)
COMMIT_CHANGES = changes(
    ticket=st.sampled_from(["victim", "ended", "committed", "unknown", ""]),
    generation=NUMBERS,
    rank=NUMBERS,
    num_ranks=NUMBERS,
    num_computed_tokens=st.sampled_from([0, 1, 48, 80, 2**32 - 1]),
    attempt=NUMBERS,
    logical_block=NUMBERS,
    checksum=NUMBERS,
    one_checksum_less=st.none(),
    one_block_less=st.none(),
    flip=st.integers(0, 2**10),
    again=st.none(),
)


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    attacks=st.lists(st.tuples(FRAME_CHANGES, COMMIT_CHANGES), min_size=1, max_size=6),
    raw=st.lists(st.tuples(st.sampled_from(["Map", "Push", "Commit", "Fail"]), st.binary(max_size=100)), max_size=2),
)
def test_a_hostile_sender(attacks: list[tuple[list[Change], list[Change]]], raw: list[tuple[str, bytes]]) -> None:
    asyncio.run(_attack(attacks, raw))


async def _attack(attacks: list[tuple[list[Change], list[Change]]], raw: list[tuple[str, bytes]]) -> None:
    async with asyncio.timeout(30), open_transfer(SPEC) as transfer, open_channel(transfer.address) as channel:
        scene = await Scene.prepare(transfer, channel)
        for frame_changes, commit_changes in attacks:
            await scene.transfer(frame_changes, commit_changes)
        for method, message in raw:
            await scene.call(method, [message])
        await scene.finish_victim()


class Scene:
    """Tickets in several states, and one of which nothing is secret to the hostile sender."""

    def __init__(self, transfer: Transfer, channel: grpc.aio.Channel) -> None:
        self._transfer = transfer
        self._channel = channel
        self._victim = transfer.target(VICTIM_BLOCKS, PRESENT)
        self._victim_sender = transfer.sender(self._victim)
        self._ended = transfer.target((1,), (False,))
        self._committed = transfer.target((5,), (False,))
        self._tickets = {
            "victim": self._victim.ticket_id,
            "ended": self._ended.ticket_id,
            "committed": self._committed.ticket_id,
            "unknown": "0" * 32,
            "": "",
        }

    @classmethod
    async def prepare(cls, transfer: Transfer, channel: grpc.aio.Channel) -> Scene:
        transfer.blocks.array[:] = 85
        scene = cls(transfer, channel)
        sender = transfer.sender(scene._committed)
        await sender.push([(BlockRef(0, 0), 5)])
        await sender.commit(num_computed_tokens=16, first_tokens=(), attempt=ATTEMPT)
        transfer.sink.table.abort(scene._ended.ticket_id, "ended", transfer.sink.now())
        await scene._victim_sender.push([(BlockRef(0, 1), 21)])
        while transfer.counters.received_bytes < 2 * BLOCK_BYTES:
            await asyncio.sleep(0)
        return scene

    async def transfer(self, frame_changes: list[Change], commit_changes: list[Change]) -> None:
        """A transfer of a ticket that the sender was given, changed; what it may do, and what it may not."""
        own = self._transfer.target(OWN_BLOCKS, PRESENT)
        before = self._transfer.blocks.array.copy()
        await self.call("Push", _frames(own, frame_changes, self._tickets))
        await self._commit(own, commit_changes)
        table = self._transfer.sink.table
        self._assert_untouched(before)
        if table.get(own.ticket_id).state is TicketState.COMMITTED:
            assert not self._missing(own), "a commit was taken of what has not come"
        table.abort(own.ticket_id, "the attack is over", self._transfer.sink.now())
        assert not table.get(own.ticket_id).open_streams
        assert table.num_open == 1  # the victim's
        table.check_integrity()

    async def call(self, method: str, messages: list[bytes]) -> None:
        """Answered in time, and when it is refused, with a refusal."""
        path = f"/slipstream.v1.KvTransfer/{method}"
        try:
            if method == "Push":
                await self._channel.stream_unary(path)(_stream(messages), timeout=CALL_TIMEOUT_S)
            else:
                await self._channel.unary_unary(path)(messages[0], timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            refused = error
        else:
            return
        if refused.details() == MET_THE_END:
            return
        assert refused.code() in REFUSALS, f"{method}: {refused.code()}: {refused.details()}"

    async def finish_victim(self) -> None:
        """The other transfer goes on as if nothing had been."""
        await self._victim_sender.push([(BlockRef(0, index), VICTIM_BLOCKS[index]) for index in (2, 3)])
        await self._victim_sender.commit(num_computed_tokens=64, first_tokens=(), attempt=ATTEMPT)
        for block_id in VICTIM_BLOCKS[1:]:
            assert np.array_equal(self._transfer.blocks.array[block_id], self._transfer.source.array[block_id])

    async def _commit(self, own: PushTarget, changes: list[Change]) -> None:
        request = _commit_request(own, changes, self._tickets)
        encoded = bytearray(request.SerializeToString())
        for change in changes:
            if change.what == "flip":
                _flip(encoded, change)
        for _ in range(1 + sum(change.what == "again" for change in changes)):
            await self.call("Commit", [bytes(encoded)])

    def _assert_untouched(self, before: np.ndarray[Any, Any]) -> None:
        after = self._transfer.blocks.array
        changed = {index for index in range(len(before)) if not np.array_equal(before[index], after[index])}
        assert changed <= set(OWN_BLOCKS[1:]), f"blocks {changed} were written"

    def _missing(self, own: PushTarget) -> list[int]:
        """Blocks that do not hold what an unchanged transfer brings."""
        return [
            block_id
            for index, block_id in enumerate(OWN_BLOCKS)
            if index and zlib.crc32(self._transfer.blocks.array[block_id].data) != zlib.crc32(_content(index))
        ]


def _content(logical_block: int) -> bytes:
    return bytes([logical_block]) * BLOCK_BYTES


def _frames(own: PushTarget, changes: list[Change], tickets: dict[str, str]) -> list[bytes]:
    """The blocks that are missing, in two parts each, with what is changed about them."""
    headers, payloads = [], []
    half = BLOCK_BYTES // 2
    for logical_block in range(1, 1 + NUM_BLOCKS_SENT):
        for offset, length in ((0, half), (half, BLOCK_BYTES - half)):
            extent = pb.Extent(logical_block=logical_block, offset=offset, length=length)
            headers.append(pb.PushHeader(ticket_id=own.ticket_id, generation=own.generation, extents=[extent]))
            payloads.append(_content(logical_block)[offset : offset + length])
    for change in changes:
        index = change.position % len(headers)
        _change_header(headers[index], change, tickets)
        if change.what == "more_payload":
            payloads[index] += bytes(change.value)
        elif change.what == "less_payload":
            payloads[index] = payloads[index][: -change.value]
    frames = [
        bytearray(encode_frame(header, [memoryview(payload)]))
        for header, payload in zip(headers, payloads, strict=True)
    ]
    for change in changes:
        _change_frames(frames, change)
    return [bytes(frame) for frame in frames]


def _change_header(header: pb.PushHeader, change: Change, tickets: dict[str, str]) -> None:
    match change.what:
        case "ticket":
            header.ticket_id = tickets[change.value]
            # Whoever knows another's ticket and generation is its sender: those are what is secret.
            header.generation = 2 if change.value == "victim" else header.generation
        case "generation" | "rank" | "group_id":
            if header.ticket_id != tickets["victim"]:
                setattr(header, change.what, change.value)
        case "logical_block" | "offset" | "length":
            setattr(header.extents[0], change.what, change.value)


def _change_frames(frames: list[bytearray], change: Change) -> None:
    if not frames:
        return
    index = change.position % len(frames)
    match change.what:
        case "cut":
            del frames[index][change.value % (len(frames[index]) + 1) :]
        case "flip":
            _flip(frames[index], change)
        case "again":
            frames.append(frames[index])
        case "left_out":
            del frames[index]


def _flip(data: bytearray, change: Change) -> None:
    """One bit among the first bytes, where a message says what it is."""
    if data:
        data[change.position % min(len(data), 80)] ^= 1 << change.value % 8


def _commit_request(own: PushTarget, changes: list[Change], tickets: dict[str, str]) -> pb.CommitRequest:
    blocks = range(1, 1 + NUM_BLOCKS_SENT)
    group = pb.GroupCommit(logical_blocks=blocks, checksums=[zlib.crc32(_content(index)) for index in blocks])
    request = pb.CommitRequest(
        ticket_id=own.ticket_id,
        generation=own.generation,
        num_ranks=1,
        num_computed_tokens=64,
        groups=[group],
        attempt=ATTEMPT,
    )
    (group,) = request.groups
    for change in changes:
        index = change.position % NUM_BLOCKS_SENT
        match change.what:
            case "ticket":
                request.ticket_id = tickets[change.value]
                request.generation = 2 if change.value == "victim" else request.generation
            case "generation" | "rank" | "num_ranks" | "num_computed_tokens" | "attempt":
                if request.ticket_id != tickets["victim"]:
                    setattr(request, change.what, change.value)
            case "logical_block":
                group.logical_blocks[min(index, len(group.logical_blocks) - 1)] = change.value
            case "checksum" if group.checksums:
                group.checksums[min(index, len(group.checksums) - 1)] = change.value
            case "one_checksum_less" if group.checksums:
                del group.checksums[-1]
            case "one_block_less" if len(group.checksums) > 1 and len(group.logical_blocks) > 1:
                del group.logical_blocks[-1], group.checksums[-1]
    return request


async def _stream(messages: list[bytes]) -> AsyncIterator[bytes]:
    for message in messages:
        yield message
