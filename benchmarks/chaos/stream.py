"""One asked question as its caller sees the answer grow."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.chaos.workload import Question
from common.errors import SlipstreamError
from common.request import FinishReason, TokenLogprob
from router.generation import RouteHint
from slipstream.async_client import AsyncClient
from slipstream.generation import GenerateOptions, GenerationDelta

DEADLINE_MS = 40_000


@dataclass(slots=True)
class SeenChoice:
    """What one choice's messages brought, in the order of their arrival."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    stop_string: str | None = None
    repeated: int = 0  # tokens that were there already
    skipped: int = 0  # tokens that never came


class Stream:
    """Begins at once. Owned by the event loop."""

    def __init__(
        self,
        question: Question,
        request_id: str,
        client: AsyncClient,
        *,
        salt: str,
        route: RouteHint | None = None,
    ) -> None:
        self.question = question
        self.request_id = request_id
        self.choices = [SeenChoice() for _ in range(question.num_choices)]
        self.asked_s = time.monotonic()
        self.arrivals_s: list[float] = []
        self.ended_s: float | None = None
        self.error: BaseException | None = None
        self.cancelled = False
        self.attempts = 0
        self.route = route
        self._salt = salt
        self.task = asyncio.create_task(self._run(client), name=request_id)

    @property
    def num_tokens(self) -> int:
        """Of the choice that has most."""
        return max(len(choice.token_ids) for choice in self.choices)

    @property
    def progress(self) -> float:
        """Share of the answer that has come."""
        return self.num_tokens / self.question.max_tokens

    @property
    def heard_s(self) -> float:
        """When something came last; monotonic."""
        return self.arrivals_s[-1] if self.arrivals_s else self.asked_s

    @property
    def running(self) -> bool:
        return not self.task.done()

    def cancel(self) -> None:
        """The caller goes away."""
        if self.running:
            self.cancelled = True
            self.task.cancel()

    def longest_silence_s(self, since_s: float) -> float:
        """Between two messages, counted from a monotonic time on; the end of the answer is a message, too."""
        ended_s = self.ended_s if self.ended_s is not None else time.monotonic()
        return longest_gap_s((*self.arrivals_s, ended_s), max(since_s, self.asked_s))

    async def _run(self, client: AsyncClient) -> None:
        options: GenerateOptions = {
            **self.question.options,  # type: ignore[typeddict-item]
            "max_tokens": self.question.max_tokens,
            "request_id": self.request_id,
            "cache_salt": self._salt,
            "deadline_ms": DEADLINE_MS,
            "route": self.route,
        }
        deltas = client.stream(self.question.prompt, **options)
        try:
            async for delta in deltas:
                self._take(delta)
        except (SlipstreamError, ValueError) as error:
            self.error = error
        except asyncio.CancelledError:
            if not self.cancelled:
                raise
        finally:
            self.ended_s = time.monotonic()
            with contextlib.suppress(SlipstreamError):
                await deltas.aclose()  # type: ignore[attr-defined]

    def _take(self, delta: GenerationDelta) -> None:
        if not delta.choices and delta.usage is None:
            return  # a sign of life of the router's, not of the answer
        self.arrivals_s.append(time.monotonic())
        for piece in delta.choices:
            choice = self.choices[piece.index]
            if piece.token_ids:
                choice.repeated += max(0, len(choice.token_ids) - piece.first_index)
                choice.skipped += max(0, piece.first_index - len(choice.token_ids))
            choice.token_ids += piece.token_ids
            choice.logprobs += piece.logprobs
            choice.text += piece.text
            choice.finish_reason = piece.finish_reason or choice.finish_reason
            choice.stop_string = piece.stop_string or choice.stop_string
        if delta.route is not None:
            self.attempts = delta.route.attempts


def longest_gap_s(times_s: Sequence[float], since_s: float) -> float:
    """The longest time between one and the next, of those after `since_s`, and that from there to the first of them."""
    later = [since_s, *(time_s for time_s in times_s if time_s > since_s)]
    return max((after - before for before, after in itertools.pairwise(later)), default=0.0)
