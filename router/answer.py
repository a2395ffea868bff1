"""What a request has brought so far: tokens, text and figures of every choice, each token exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable

from common.errors import RequestCancelledError
from common.request import TokenLogprob
from router.admission import AdmittedRequest
from router.choice import Choice
from router.generation import AnswerStart, GenerateEvent, ResumePoint, RouteTaken, Timings, Usage
from router.inbox import LegEnded, TokensArrived
from router.text import TextModel

# A caller that reads nothing for so long is taken for gone.
MAX_UNREAD_S = 60.0


class Answer:
    """Written by the conductor, read by the front end, on one event loop.

    What is not read yet is merged, so that a slow reader gets fewer, larger messages.
    """

    def __init__(self, request: AdmittedRequest, text: TextModel, on_news: Callable[[], None]) -> None:
        """`on_news` is called whenever there is something to take."""
        self._request = request
        self._on_news = on_news
        self.choices = [
            Choice(
                index=index, text_stream=text.stream(stop=request.sampling.stop, min_tokens=request.sampling.min_tokens)
            )
            for index in range(request.sampling.n)
        ]
        self._prompt_logprobs: tuple[TokenLogprob, ...] | None = None
        self._start_told = self._prompt_told = False
        self._unread_since_s: float | None = None
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

    def resume(self, point: ResumePoint) -> None:
        """Once, before anything is delivered: takes over what the caller has received. Takes 5 to 10 µs a token.

        Raises InvalidRequestError, see `Choice.resume`.
        """
        assert self._request.sampling.max_tokens is not None
        self._prompt_told = True
        for received in point.choices:
            self.choices[received.index].resume(received, self._request.sampling.max_tokens)

    def deliver(self, message: TokensArrived, now_s: float) -> None:
        """Takes new tokens. Those seen before, or after the end, are dropped. `now_s` is monotonic.

        Raises RequestCancelledError when the caller has not read for MAX_UNREAD_S.
        """
        choice = self.choices[message.choice_index]
        num_seen = len(choice.token_ids) - message.first_index
        if choice.finished or num_seen < 0:
            return
        self._note_times(message, num_seen < len(message.token_ids), now_s)
        choice.add(message, num_seen)
        self._announce(now_s)

    def note_hand_over(self, end: LegEnded) -> None:
        self.transferred_bytes += end.num_sent_bytes
        self.transferred_blocks += end.num_sent_blocks
        self._transfer_s = end.transfer_s

    def take(self) -> GenerateEvent | None:
        """All that is new, in one event without usage; None when there is nothing."""
        self._unread_since_s = None
        choices = tuple([choice.take() for choice in self.choices if choice.has_unread])
        if not choices:
            return None
        event = GenerateEvent(
            start=self._start_once(),
            choices=choices,
            prompt_token_ids=self._prompt_ids_once(),
            prompt_logprobs=self._prompt_logprobs,
        )
        self._prompt_logprobs = None
        return event

    def last_event(self) -> GenerateEvent:
        """Usage, timings and route: nothing follows it."""
        return GenerateEvent(usage=self._usage(), timings=self._timings(), route=self._route())

    def _announce(self, now_s: float) -> None:
        if self._unread_since_s is None:
            self._unread_since_s = now_s
        elif now_s - self._unread_since_s > MAX_UNREAD_S:
            raise RequestCancelledError(f"the caller has read nothing for {MAX_UNREAD_S:.0f} s")
        self._on_news()

    def _note_times(self, message: TokensArrived, is_new: bool, now_s: float) -> None:
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

    def _start_once(self) -> AnswerStart | None:
        if self._start_told:
            return None
        self._start_told = True
        assert self._request.sampling.seed is not None
        return AnswerStart(seed=self._request.sampling.seed, prompt_digest=self._request.prompt_digest)

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
