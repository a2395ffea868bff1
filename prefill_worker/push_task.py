"""One leg's hand-over: pushes blocks as they are computed, commits, and gives the blocks back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from common.engine.results import BlocksComputed, HandedOver
from common.errors import SlipstreamError
from common.kv.sender import KVSender
from common.kv.ticket import BlockRef
from common.transport.push_target import PushTarget
from common.worker.attach_hub import LegKey
from protos import worker_pb2

logger = logging.getLogger(__name__)


class PushTask:
    """Fed by the event loop, in the order of the engine's reports. Ends by itself; then `on_end` is called.

    `on_end` gets the LegEnd to tell the router, or None when the leg ended without a hand-over.
    """

    def __init__(
        self,
        key: LegKey,
        choice_indices: Iterable[int],
        target: PushTarget,
        sender: KVSender,
        on_end: Callable[[LegKey, KVSender, worker_pb2.LegEnd | None], None],
    ) -> None:
        self._key = key
        self._open_choices = set(choice_indices)
        self._missing = {group.group_id: target.missing(group.group_id) for group in target.maps}
        self._sender = sender
        self._on_end = on_end
        self._inbox: asyncio.Queue[BlocksComputed | HandedOver | str] = asyncio.Queue()
        self.task = asyncio.create_task(self._run(), name=f"push {key.request_id}")

    def computed(self, blocks: BlocksComputed) -> None:
        self._inbox.put_nowait(blocks)

    def handed_over(self, handed_over: HandedOver) -> None:
        self._inbox.put_nowait(handed_over)

    def choices_ended(self, choice_indices: Iterable[int]) -> None:
        """Cancelled, failed, or finished with their first token. Without any left there is nothing to hand over."""
        self._open_choices.difference_update(choice_indices)
        if not self._open_choices:
            self.give_up("every choice has ended")

    def give_up(self, reason: str) -> None:
        """The leg ended before its hand-over, or is not wanted any more. Idempotent."""
        self._inbox.put_nowait(reason)

    async def _run(self) -> None:
        end: worker_pb2.LegEnd | None = None
        try:
            end = await self._push()
        except Exception as error:
            logger.warning(
                "hand-over of %s failed: %s",
                self._key.request_id,
                error,
                exc_info=None if isinstance(error, SlipstreamError) else error,
            )
            status = error.status if isinstance(error, SlipstreamError) else SlipstreamError.status
            end = self._leg_end(worker_pb2.LEG_END_REASON_TRANSFER_FAILED, str(error) or type(error).__name__)
            end.status = status.value
            await self._sender.fail(end.message)
        finally:
            self._on_end(self._key, self._sender, end)

    async def _push(self) -> worker_pb2.LegEnd | None:
        while True:
            match await self._inbox.get():
                case BlocksComputed() as blocks:
                    await self._sender.push(self._wanted(blocks))
                case HandedOver() as done:
                    return await self._commit(done)
                case reason:
                    await self._sender.fail(reason)
                    return None

    async def _commit(self, done: HandedOver) -> worker_pb2.LegEnd:
        started_s = time.monotonic()
        await self._sender.commit(
            num_computed_tokens=done.num_computed_tokens,
            first_tokens=done.first_tokens,
            attempt=done.attempt,
        )
        end = self._leg_end(worker_pb2.LEG_END_REASON_HANDED_OVER, "")
        end.transfer_ms = (time.monotonic() - started_s) * 1000
        return end

    def _wanted(self, blocks: BlocksComputed) -> list[tuple[BlockRef, int]]:
        missing = self._missing.get(blocks.group_id, frozenset())
        return [
            (BlockRef(blocks.group_id, logical_block), block_id)
            for logical_block, block_id in enumerate(blocks.block_ids, blocks.first_logical_block)
            if logical_block in missing
        ]

    def _leg_end(self, reason: worker_pb2.LegEndReason, message: str) -> worker_pb2.LegEnd:
        return worker_pb2.LegEnd(
            request_id=self._key.request_id,
            attempt=self._key.attempt,
            reason=reason,
            message=message,
            sent_bytes=self._sender.num_sent_bytes,
            sent_blocks=self._sender.num_sent_blocks,
        )
