"""What workers tell about one attempt of a request, in the router's own words."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from common.request import FinishReason, LegKey, TokenLogprob, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class LegStarted:
    """Told with a leg's first token. Seconds; tokens."""

    num_cached_tokens: int
    queue_s: float
    prefill_s: float
    prompt_logprobs: tuple[TokenLogprob, ...]


class TokensArrived(NamedTuple):
    worker_id: WorkerId
    choice_index: int
    first_index: int
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    finish_reason: FinishReason | None
    stop_token_id: int | None
    start: LegStarted | None


class EndReason(Enum):
    HANDED_OVER = auto()
    TRANSFER_FAILED = auto()
    PREEMPTED = auto()
    REJECTED = auto()
    FAILED = auto()
    CANCELLED = auto()
    KEPT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class LegEnded:
    """A leg, or some of its choices (none named: all), ended otherwise than by a finish reason."""

    worker_id: WorkerId
    choice_indices: tuple[int, ...]
    reason: EndReason
    status: str
    message: str
    num_sent_bytes: int
    num_sent_blocks: int
    transfer_s: float
    push_s: float = 0.0  # spent in sending
    num_output_tokens: int = 0  # of a kept choice


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDrains:
    """The worker wants to be rid of what it decodes."""

    worker_id: WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost:
    """The stream to the worker broke: whatever it held of this attempt is gone."""

    worker_id: WorkerId


Message = TokensArrived | LegEnded | WorkerDrains | WorkerLost


class Inbox:
    """One attempt's messages, from the one or two workers that it runs on. Lives on the event loop.

    Bounded by what the attempt can produce: at most max_tokens messages a choice and a few ends.
    """

    def __init__(self, key: LegKey) -> None:
        self.key = key
        self._messages: deque[Message] = deque()
        self._follower: _Follower | None = None
        self._lost: dict[WorkerId, asyncio.Event] = {}

    def put(self, message: Message) -> None:
        if isinstance(message, WorkerLost):
            self._lost_event(message.worker_id).set()
        if self._follower is None or self._follower.ended.done():
            self._messages.append(message)
        else:
            self._follower.take_in(message)

    async def follow(self, take: Callable[[Message], None], *, until: Callable[[], bool]) -> None:
        """Has each message taken, those that wait and those to come, until there were enough. Raises what `take` does.

        `take` is called by whoever puts a message: to wake a task for each token costs more than to take it.
        """
        while self._messages and not until():
            take(self._messages.popleft())
        if until():
            return
        self._follower = _Follower(take, until, asyncio.get_running_loop().create_future())
        try:
            await self._follower.ended
        finally:
            self._follower = None

    async def wait_lost(self, worker_id: WorkerId) -> None:
        """Until this worker's loss was told, which may be before; its message stays to be taken."""
        await self._lost_event(worker_id).wait()

    def _lost_event(self, worker_id: WorkerId) -> asyncio.Event:
        return self._lost.setdefault(worker_id, asyncio.Event())


class _Follower(NamedTuple):
    take: Callable[[Message], None]
    until: Callable[[], bool]
    ended: asyncio.Future[None]

    def take_in(self, message: Message) -> None:
        try:
            self.take(message)
        except Exception as error:
            self.ended.set_exception(error)
        else:
            if self.until():
                self.ended.set_result(None)
