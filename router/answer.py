"""What a request has brought so far: tokens, text and figures of every choice, each token exactly once."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from common.errors import RequestCancelledError
from common.request import FinishReason, TokenLogprob
from router.admission import AdmittedRequest
from router.generation import ChoiceDelta, GenerateEvent, RouteTaken, Timings, Usage
from router.inbox import LegEnded, TokensArrived
from router.text import TextModel, TextStream
from router.whereabouts import QUEUED, Whereabouts

# A caller that reads nothing for so long is taken for gone.
MAX_UNREAD_S = 60.0


@dataclass(slots=True, kw_only=True)
class Choice:
    """One choice's tokens so far, and the part of them that no one has read yet."""

    index: int
    text_stream: TextStream
    token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    stop_string: str | None = None
    unread_token_ids: list[int] = field(default_factory=list)
    unread_logprobs: list[TokenLogprob] = field(default_factory=list)
    unread_text: list[str] = field(default_factory=list)
    has_unread: bool = False
    whereabouts: Whereabouts = QUEUED

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None


class Answer:
    """Written by the conductor, read by the front end, on one event loop.

    What is not read yet is merged, so that a slow reader gets fewer, larger messages.
    """

    def __init__(self, request: AdmittedRequest, text: TextModel) -> None:
        self._request = request
        self.choices = [
            Choice(
                index=index, text_stream=text.stream(stop=request.sampling.stop, min_tokens=request.sampling.min_tokens)
            )
            for index in range(request.sampling.n)
        ]
        self._prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self._prompt_told = False
        self._unread_since_s: float | None = None
        self._arrived = asyncio.Event()
        self._first_token_s: float | None = None
        self._second_token_s: float | None = None
        self._last_token_s: float | None = None
        self._cached_tokens: int | None = None
        self._queue_s = self._prefill_s = self._transfer_s = 0.0
        self.attempts = 0
        self.preemptions = 0
        self.transferred_bytes = self.transferred_blocks = self.decode_cached_blocks = 0
        self.prefill_worker: str | None = None
        self.decode_worker: str | None = None

    @property
    def request(self) -> AdmittedRequest:
        return self._request

    @property
    def num_cached_tokens(self) -> int | None:
        """Prompt tokens that the first attempt reused; None before its first token."""
        return self._cached_tokens

    @property
    def ttft_s(self) -> float:
        """From arrival to the first token; 0 before it."""
        return 0.0 if self._first_token_s is None else self._first_token_s - self._request.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Mean time per token after the first, so far, of the choice that has most; None before the second."""
        num_tokens = max(len(choice.token_ids) for choice in self.choices)
        if self._first_token_s is None or self._last_token_s is None or num_tokens < 2:
            return None
        return (self._last_token_s - self._first_token_s) / (num_tokens - 1)

    @property
    def transfer_s(self) -> float | None:
        """From the first token until decode accepted the commit; None when nothing was handed over."""
        return self._transfer_s if self.transferred_blocks else None

    @property
    def finished(self) -> bool:
        return all(choice.finished for choice in self.choices)

    def deliver(self, message: TokensArrived) -> None:
        """Takes new tokens. Those seen before, or after the end, are dropped.

        Raises RequestCancelledError when the caller has not read for MAX_UNREAD_S.
        """
        choice = self.choices[message.choice_index]
        num_seen = len(choice.token_ids) - message.first_index
        if choice.finished or num_seen < 0:
            return
        token_ids = message.token_ids[num_seen:]
        logprobs = message.logprobs[num_seen:]
        self._note_times(message, bool(token_ids))
        stop_token_id = message.stop_token_id
        delta = choice.text_stream.push(
            token_ids, finished=message.finish_reason is not None, stop_token=stop_token_id is not None
        )
        if delta.stop_string is not None:
            token_ids, logprobs = token_ids[: delta.num_tokens], logprobs[: delta.num_tokens]
            choice.finish_reason, choice.stop_string = FinishReason.STOP, delta.stop_string
        elif message.finish_reason is not None:
            choice.finish_reason, choice.stop_token_id = message.finish_reason, stop_token_id
        choice.token_ids += token_ids
        choice.unread_token_ids += token_ids
        choice.unread_logprobs += logprobs
        choice.unread_text.append(delta.text)
        choice.has_unread = choice.has_unread or bool(token_ids) or choice.finished
        self._announce()

    def note_hand_over(self, end: LegEnded) -> None:
        self.transferred_bytes += end.num_sent_bytes
        self.transferred_blocks += end.num_sent_blocks
        self._transfer_s = end.transfer_s

    async def wait(self) -> None:
        """Until there is something to take, or `wake` was called."""
        await self._arrived.wait()
        self._arrived.clear()

    def wake(self) -> None:
        """Nothing more will come: a reader must not wait for it."""
        self._arrived.set()

    def take(self) -> GenerateEvent | None:
        """All that is new, in one event without usage; None when there is nothing."""
        self._unread_since_s = None
        choices = tuple(_take(choice) for choice in self.choices if choice.has_unread)
        if not choices:
            return None
        event = GenerateEvent(
            choices=choices, prompt_token_ids=self._prompt_ids_once(), prompt_logprobs=self._prompt_logprobs
        )
        self._prompt_logprobs = None
        return event

    def last_event(self) -> GenerateEvent:
        """Usage, timings and route: nothing follows it."""
        return GenerateEvent(usage=self._usage(), timings=self._timings(), route=self._route())

    def _announce(self) -> None:
        now_s = time.monotonic()
        if self._unread_since_s is None:
            self._unread_since_s = now_s
        elif now_s - self._unread_since_s > MAX_UNREAD_S:
            raise RequestCancelledError(f"the caller has read nothing for {MAX_UNREAD_S:.0f} s")
        self._arrived.set()

    def _note_times(self, message: TokensArrived, is_new: bool) -> None:
        now_s = time.monotonic()
        if message.start is not None and self._cached_tokens is None:
            self._cached_tokens = message.start.num_cached_tokens
            self._prefill_s = message.start.prefill_s
            self._prompt_logprobs = message.start.prompt_logprobs or None
            self._queue_s = max(0.0, now_s - self._request.arrival_s - message.start.prefill_s)
        if not is_new:
            return
        self._last_token_s = now_s
        if self._first_token_s is None:
            self._first_token_s = now_s
        elif self._second_token_s is None and message.first_index + len(message.token_ids) > 1:
            self._second_token_s = now_s

    def _prompt_ids_once(self) -> tuple[int, ...] | None:
        if self._prompt_told or not self._request.command.return_prompt_token_ids:
            return None
        self._prompt_told = True
        return self._request.prompt_token_ids

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=len(self._request.prompt_token_ids),
            cached_tokens=self._cached_tokens or 0,
            generated_tokens=sum(len(choice.token_ids) for choice in self.choices),
        )

    def _timings(self) -> Timings:
        first_s, second_s = self._first_token_s, self._second_token_s
        return Timings(
            queue_s=self._queue_s,
            prefill_s=self._prefill_s,
            transfer_s=self._transfer_s,
            ttft_s=self.ttft_s,
            token_1_to_2_s=0.0 if first_s is None or second_s is None else second_s - first_s,
            total_s=time.monotonic() - self._request.arrival_s,
        )

    def _route(self) -> RouteTaken:
        return RouteTaken(
            prefill_worker=self.prefill_worker,
            decode_worker=self.decode_worker,
            attempts=self.attempts,
            transferred_bytes=self.transferred_bytes,
            transferred_blocks=self.transferred_blocks,
            decode_cached_blocks=self.decode_cached_blocks,
            preemptions=self.preemptions,
        )


def _take(choice: Choice) -> ChoiceDelta:
    delta = ChoiceDelta(
        index=choice.index,
        first_index=len(choice.token_ids) - len(choice.unread_token_ids),
        token_ids=tuple(choice.unread_token_ids),
        text="".join(choice.unread_text),
        logprobs=tuple(choice.unread_logprobs),
        finish_reason=choice.finish_reason,
        stop_token_id=choice.stop_token_id,
        stop_string=choice.stop_string,
    )
    choice.unread_token_ids, choice.unread_logprobs, choice.unread_text = [], [], []
    choice.has_unread = False
    return delta
