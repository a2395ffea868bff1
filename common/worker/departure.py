"""One transfer out of this worker: carries out what its source ticket asks for, over whatever transport."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from common.engine.results import BlocksComputed, HandedOver
from common.errors import DeadlineExceededError, OverloadedError, SlipstreamError, UnavailableError
from common.kv.sender import KVSender
from common.kv.source_ticket import AskMap, Commit, End, KVReady, Push, SourceBlock, SourceState, SourceTicket, Stop
from common.kv.ticket import BlockRef
from common.request import LegKey
from common.transport.push_target import PushTarget
from common.transport.sink_control import SinkControl
from protos import worker_pb2

logger = logging.getLogger(__name__)

# A sink that did not answer, or had no blocks to give, is asked again after so long.
RETRY_S = 0.1

OpenSender = Callable[[PushTarget], KVSender]


class Departure:
    """Fed by the event loop, in the order of the engine's reports. Ends by itself; then `on_end` is called, once.

    `on_end` gets the LegEnd to tell the router, or None when nobody waits for one. From then on nothing reads the
    leg's blocks.
    """

    def __init__(
        self,
        key: LegKey,
        choice_indices: Iterable[int],
        target: PushTarget,
        control: SinkControl,
        open_sender: OpenSender,
        on_end: Callable[[Departure, worker_pb2.LegEnd | None], None],
        *,
        lease_s: float,
    ) -> None:
        self.key = key
        self.ended = asyncio.Event()
        self._target = target
        self._control = control
        self._open_sender = open_sender
        self._on_end = on_end
        self._ticket = SourceTicket(choice_indices=choice_indices, maps=target.maps, lease_s=lease_s)
        self._sender: KVSender | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._known_sent_bytes = 0
        self.push_s = 0.0  # time spent in pushes
        self._handed_over_s: float | None = None

    @property
    def num_sent_bytes(self) -> int:
        return 0 if self._sender is None else self._sender.num_sent_bytes

    @property
    def num_sent_blocks(self) -> int:
        return 0 if self._sender is None else self._sender.num_sent_blocks

    @property
    def is_mapped(self) -> bool:
        return self._ticket.is_mapped

    def computed(self, blocks: BlocksComputed) -> None:
        self._ticket.computed(source_blocks(blocks.group_id, blocks.first_logical_block, blocks.block_ids), _now())
        self._settle()

    def handed_over(self, done: HandedOver) -> None:
        self._handed_over_s = _now()
        ready = KVReady(
            num_computed_tokens=done.num_computed_tokens, first_tokens=done.first_tokens, attempt=self.key.attempt
        )
        self._ticket.handed_over(ready, _now())
        self._settle()

    def ask_map(self) -> None:
        """It is time to know where the blocks go. Idempotent."""
        self._ticket.ask_map(_now())
        self._settle()

    def choices_ended(self, choice_indices: Iterable[int]) -> None:
        """Cancelled, failed, or finished with their first token. Without any left there is nothing to hand over."""
        self._ticket.choices_ended(choice_indices, _now())
        self._settle()

    def give_up(self, reason: str) -> None:
        """The leg ended before its hand-over, or is not wanted any more. Idempotent."""
        self._ticket.give_up(reason, _now())
        self._settle()

    def expire(self) -> None:
        """Gives up a sink that is silent. Call it now and then."""
        if self.num_sent_bytes != self._known_sent_bytes:
            self._known_sent_bytes = self.num_sent_bytes
            self._ticket.progress(_now())
        self._ticket.expire(_now())
        self._settle()

    def _settle(self) -> None:
        for action in self._ticket.drain_actions():
            match action:
                case AskMap():
                    self._start(self._ask_map())
                case Push(blocks=blocks):
                    # Told by the task's end, which comes even when it is cancelled before it began.
                    self._start(self._push(blocks)).add_done_callback(self._push_done)
                case Commit(ready=ready):
                    self._start(self._commit(ready))
                case Stop(reason=reason):
                    for task in self._tasks - {asyncio.current_task()}:
                        task.cancel()
                    if self._sender is not None:
                        self._sender.close()
                    self._start(self._control.fail(self._target, reason))
                case End(state=state, error=error):
                    self.ended.set()
                    self._on_end(self, self._leg_end(state, error))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=f"departure of {self.key.request_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ask_map(self) -> None:
        answered = False
        try:
            self._target = await self._control.map(self._target)
        except (OverloadedError, UnavailableError, DeadlineExceededError) as error:
            answered = isinstance(error, OverloadedError)
            await asyncio.sleep(RETRY_S)
            self._ticket.map_refused(_now(), answered=answered)
        except SlipstreamError as error:
            self._ticket.failed(error, _now())
        else:
            assert self._target.maps is not None
            self._ticket.mapped(self._target.maps, _now())
        self._settle()

    async def _push(self, blocks: tuple[SourceBlock, ...]) -> None:
        started_s = _now()
        await self._opened_sender().push(blocks)
        self.push_s += _now() - started_s

    def _push_done(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._ticket.push_ended(_now())
        else:
            self._ticket.push_failed(_told(error), _now())
        self._settle()

    async def _commit(self, ready: KVReady) -> None:
        try:
            await self._opened_sender().commit(
                num_computed_tokens=ready.num_computed_tokens, first_tokens=ready.first_tokens, attempt=ready.attempt
            )
        except (UnavailableError, DeadlineExceededError) as error:
            logger.info("commit of %s was not answered: %s", self.key.request_id, error)
            await asyncio.sleep(RETRY_S)
            self._ticket.commit_lost(_now())
        except Exception as error:
            self._ticket.commit_refused(_told(error), _now())
        else:
            self._ticket.committed(_now())
        self._settle()

    def _opened_sender(self) -> KVSender:
        if self._sender is None:
            self._sender = self._open_sender(self._target)
        return self._sender

    def _leg_end(self, state: SourceState, error: SlipstreamError | None) -> worker_pb2.LegEnd | None:
        if state is SourceState.RELEASED:
            return None
        end = worker_pb2.LegEnd(
            request_id=self.key.request_id,
            attempt=self.key.attempt,
            reason=worker_pb2.LEG_END_REASON_HANDED_OVER,
            sent_bytes=self.num_sent_bytes,
            sent_blocks=self.num_sent_blocks,
            push_ms=self.push_s * 1000,
        )
        if error is not None:
            logger.warning("hand-over of %s failed: %s", self.key.request_id, error)
            end.reason = worker_pb2.LEG_END_REASON_TRANSFER_FAILED
            end.status = error.status.value
            end.message = str(error)
        elif self._handed_over_s is not None:
            end.transfer_ms = (_now() - self._handed_over_s) * 1000
        return end


def source_blocks(group_id: int, first_logical_block: int, block_ids: Iterable[int]) -> list[SourceBlock]:
    """Blocks of one group, from a logical block on, as a source ticket names them."""
    return [(BlockRef(group_id, logical), block_id) for logical, block_id in enumerate(block_ids, first_logical_block)]


def _told(error: BaseException) -> SlipstreamError:
    """A bug is told to the router too, and logged with where it happened."""
    if isinstance(error, SlipstreamError):
        return error
    logger.error("a hand-over raised", exc_info=error)
    return SlipstreamError(f"{type(error).__name__}: {error}")


def _now() -> float:
    return time.monotonic()
