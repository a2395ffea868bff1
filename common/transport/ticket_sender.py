"""The source's end of one transfer: a stream that carries its blocks, another when that fails, and the last word."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import grpc

from common.errors import SlipstreamError, StaleTicketError
from common.kv.first_token import FirstToken
from common.net.status import error_from_call
from common.transport.block_stream import BlockStream
from common.transport.channels import PeerChannels
from common.transport.commit_codec import encode_commit
from common.transport.push_target import PushTarget
from common.transport.source_blocks import Block, SourceBlocks
from common.transport.transfer_counters import TransferCounters
from protos import transfer_pb2_grpc

logger = logging.getLogger(__name__)

CONTROL_TIMEOUT_S = 10.0

OpenStream = Callable[[], BlockStream]


class TicketSender:
    """A KVSender. One call of `push` or `commit` at a time; `close` at any.

    `streams` are tried in turn, for this request alone: a stream that fails is given up, and all its blocks are sent
    again by the next. The last one's errors are the request's.
    """

    def __init__(
        self,
        target: PushTarget,
        blocks: SourceBlocks,
        channels: PeerChannels,
        streams: Sequence[OpenStream],
        counters: TransferCounters,
    ) -> None:
        assert streams
        self._target = target
        self._blocks = blocks
        self._stub = transfer_pb2_grpc.KvTransferStub(channels.get(target.address))
        self._others = list(streams)
        self._stream = self._others.pop(0)()
        self._counters = counters
        self._sent: list[Block] = []
        self._finished = False

    @property
    def num_sent_bytes(self) -> int:
        return self._stream.num_sent_bytes

    @property
    def num_sent_blocks(self) -> int:
        return len(self._sent)

    @property
    def transport(self) -> str:
        """What carries, or carried, the blocks."""
        return self._stream.transport

    async def push(self, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        self._sent.extend(blocks)
        try:
            await self._stream.send(blocks)
        except SlipstreamError as error:
            await self._fall_back(error)

    async def commit(self, *, num_computed_tokens: int, first_tokens: Sequence[FirstToken], attempt: int) -> None:
        await self._finish()
        request = encode_commit(
            ticket_id=self._target.ticket_id,
            generation=self._target.generation,
            num_computed_tokens=num_computed_tokens,
            checksums=self._blocks.checksums,
            checksum=self._blocks.checksum,
            first_tokens=first_tokens,
            attempt=attempt,
        )
        try:
            await self._stub.Commit(request, timeout=CONTROL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise error_from_call(error) from error

    def close(self) -> None:
        self._stream.close()

    async def _finish(self) -> None:
        while not self._finished:
            try:
                await self._stream.finish()
            except SlipstreamError as error:
                await self._fall_back(error)
            else:
                self._finished = True
                self._counters.sent_bytes_by_transport[self.transport] += self.num_sent_bytes

    async def _fall_back(self, error: SlipstreamError) -> None:
        """Sends again what was sent, by the next stream. Raises `error` when there is none, or no use in one."""
        if not self._others or isinstance(error, StaleTicketError):
            raise error
        failed = self._stream.transport
        self._counters.fallbacks[failed] += 1
        logger.warning("%s failed for ticket of %s: %s; sending again", failed, self._target.address, error)
        if not await self._stream.abandon():
            raise error
        self._stream = self._others.pop(0)()
        try:
            await self._stream.send(self._sent)
        except SlipstreamError as next_error:
            await self._fall_back(next_error)
