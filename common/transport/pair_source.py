"""Groups of two that this worker sends by, and the lanes over them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence

import torch

from common.errors import OverloadedError, SlipstreamError, UnavailableError
from common.transport.channels import PeerChannels
from common.transport.pair import FORM_TIMEOUT_S, MARGIN_S, OPERATION_TIMEOUT_S, SOURCE_RANK, local_address_towards
from common.transport.pair_link import PairLink
from common.transport.source_blocks import Piece, SourceBlocks
from common.transport.tensor_blocks import TensorBlocks, copy_bytes
from protos import transfer_pb2 as pb

TRANSPORT = "island"
PAIR_METHOD = "/slipstream.v1.KvTransfer/Pair"
BATCH_BYTES = 2 * 2**20
NUM_SLOTS = 4
# A peer with whom no group could be formed is asked again after this.
SHUN_S = 10.0


class SourcePair:
    """A link, with the memory that batches are sent from: [NUM_SLOTS, BATCH_BYTES] uint8."""

    def __init__(self, pair_id: str, link: PairLink) -> None:
        self.pair_id = pair_id
        self.link = link
        self.staging = torch.empty((NUM_SLOTS, BATCH_BYTES), dtype=torch.uint8, device=link.pair.device)
        self.formed = asyncio.Event()
        self.call_task: asyncio.Task[None] | None = None


class PairSource:
    """Owned by the event loop. At most `max_pairs` groups live: the one longest unused makes room."""

    def __init__(
        self,
        *,
        island: str,
        blocks: TensorBlocks,
        channels: PeerChannels,
        max_pairs: int,
        timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> None:
        self.island = island
        self.blocks = blocks
        self._channels = channels
        self._max_pairs = max_pairs
        self._timeout_s = timeout_s
        self._pairs: OrderedDict[str, asyncio.Task[SourcePair]] = OrderedDict()  # by the sink's address
        self._shunned: dict[str, float] = {}

    @property
    def num_pairs(self) -> int:
        return len(self._pairs)

    def reaches(self, address: str) -> bool:
        return self._shunned.get(address, 0.0) <= time.monotonic()

    def lane(self, address: str) -> PairLane:
        return PairLane(self, address)

    async def acquire(self, address: str) -> SourcePair:
        """Raises SlipstreamError when there is no room or no group; `release` must follow."""
        forming = self._pairs.get(address)
        if forming is None or _is_closed(forming):
            self._pairs.pop(address, None)
            self._make_room()
            forming = self._pairs[address] = asyncio.create_task(self._form(address), name=f"pair {address}")
            forming.add_done_callback(_retrieve)
        self._pairs.move_to_end(address)
        try:
            pair = await asyncio.shield(forming)
        except SlipstreamError:
            if self._pairs.get(address) is forming:
                del self._pairs[address]
                self._shunned[address] = time.monotonic() + SHUN_S
            raise
        pair.link.num_users += 1
        return pair

    def release(self, address: str, pair: SourcePair, *, clean: bool) -> None:
        pair.link.num_users -= 1
        if not clean:
            pair.link.pair.close("a stream failed")

    async def close(self) -> None:
        formings = list(self._pairs.values())
        self._pairs.clear()
        for forming in formings:
            forming.cancel()
            await asyncio.gather(forming, return_exceptions=True)
            pair = _formed(forming)
            if pair is not None:
                await _end(pair)

    def _make_room(self) -> None:
        while len(self._pairs) >= self._max_pairs:
            idle = next((address for address, forming in self._pairs.items() if _is_idle(forming)), None)
            if idle is None:
                raise OverloadedError(f"island: all {self._max_pairs} groups of two are in use")
            self._pairs.pop(idle).result().link.pair.close("another peer needs the room")

    async def _form(self, address: str) -> SourcePair:
        host = address.rpartition(":")[0].strip("[]")
        local_address = await asyncio.to_thread(local_address_towards, host)
        link = PairLink(
            SOURCE_RANK, self.blocks.device, local_address, lambda entry: pb.PairRequest(entry=entry), self._timeout_s
        )
        pair = SourcePair(secrets.token_hex(16), link)
        link.say(pb.PairRequest(open=pb.PairOpen(pair_id=pair.pair_id, island=self.island)))
        pair.call_task = asyncio.create_task(self._hold_call(address, pair), name=f"pair call {address}")
        try:
            await link.form()
            async with asyncio.timeout(FORM_TIMEOUT_S + MARGIN_S):
                await pair.formed.wait()
        except TimeoutError:
            await _end(pair)
            raise UnavailableError("island: the peer's end was not ready in time") from None
        except BaseException:
            await _end(pair)
            raise
        return pair

    async def _hold_call(self, address: str, pair: SourcePair) -> None:
        call = self._channels.get(address).stream_stream(
            PAIR_METHOD,
            request_serializer=pb.PairRequest.SerializeToString,
            response_deserializer=pb.PairResponse.FromString,
        )()
        try:
            await pair.link.exchange(call.read, call.write, lambda message: pair.formed.set())
        finally:
            call.cancel()
            forming = self._pairs.get(address)
            if forming is not None and _formed(forming) is pair:
                del self._pairs[address]


class PairLane:
    """A SourceLane over a group that streams use in turns."""

    transport = TRANSPORT
    batch_bytes = BATCH_BYTES
    num_slots = NUM_SLOTS
    is_plain_copy = False

    def __init__(self, source: PairSource, address: str) -> None:
        self._source = source
        self._address = address
        self._pair: SourcePair | None = None

    @property
    def turn(self) -> asyncio.Lock | None:
        assert self._pair is not None
        return self._pair.link.turn

    async def open(self) -> pb.AnnounceOpen:
        self._pair = await self._source.acquire(self._address)
        return pb.AnnounceOpen(pair=pb.PairLane(pair_id=self._pair.pair_id))

    def opened(self) -> None:
        pass

    def renew(self) -> bool:
        return False

    def load(self, slot: int, pieces: Sequence[Piece], blocks: SourceBlocks) -> pb.Batch:
        pair = self._pair
        if pair is None or pair.link.pair.closed:
            raise UnavailableError("island: the group of two has been closed")
        blocks.read(pieces)  # for the checksums
        start = 0
        for piece in pieces:
            block = self._source.blocks.block_tensor(piece.ref.group_id, piece.block_id)
            copy_bytes(
                pair.staging[slot, start : start + piece.length],
                block[piece.offset : piece.offset + piece.length],
            )
            start += piece.length
        pair.link.pair.send(pair.staging[slot, :start])  # when it fails, the sink takes nothing
        return pb.Batch(group_id=pieces[0].ref.group_id, extents=[piece.encode() for piece in pieces], slot=slot)

    def close(self, *, clean: bool) -> None:
        if self._pair is not None:
            self._source.release(self._address, self._pair, clean=clean)
            self._pair = None


def _formed(forming: asyncio.Task[SourcePair]) -> SourcePair | None:
    if not forming.done() or forming.cancelled() or forming.exception() is not None:
        return None
    return forming.result()


def _is_closed(forming: asyncio.Task[SourcePair]) -> bool:
    pair = _formed(forming)
    return pair is not None and pair.link.pair.closed


def _retrieve(forming: asyncio.Task[SourcePair]) -> None:
    if not forming.cancelled():
        forming.exception()  # who asked for it is told, if anybody still waits


def _is_idle(forming: asyncio.Task[SourcePair]) -> bool:
    pair = _formed(forming)
    return pair is not None and pair.link.num_users == 0


async def _end(pair: SourcePair) -> None:
    pair.link.pair.close("this worker ends it")
    if pair.call_task is not None:
        await asyncio.gather(pair.call_task, return_exceptions=True)
