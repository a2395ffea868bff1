"""A Generator that answers from a script: the other side of the front ends' boundary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from common.errors import ModelNotFoundError
from common.request import FinishReason, TokenLogprob, TopLogprob
from router.generation import ChoiceDelta, GenerateCommand, GenerateEvent, ModelCard, RouteTaken, Timings, Usage

TIMINGS = Timings(queue_s=0.01, prefill_s=0.02, transfer_s=0.005, ttft_s=0.03, token_1_to_2_s=0.01, total_s=0.1)
ROUTE = RouteTaken(
    prefill_worker="p0",
    decode_worker="d0",
    attempts=1,
    transferred_bytes=4096,
    transferred_blocks=1,
    decode_cached_blocks=0,
    preemptions=2,
)


class ScriptedGenerator:
    """Answers every command with `texts`, one token each, for each choice.

    `fail_with` is raised after `fail_after` events. `pause_s` lies before each event. What happened is told by
    `commands`, `num_running` and `num_closed`.
    """

    def __init__(
        self,
        texts: Sequence[str] = ("Hel", "lo", " world"),
        *,
        fail_with: Exception | None = None,
        fail_after: int = 0,
        pause_s: float = 0.0,
        finish: FinishReason = FinishReason.STOP,
        stop_token_id: int | None = None,
        stop_string: str | None = None,
        logprob: float = -0.5,
    ) -> None:
        self.texts = texts
        self.fail_with = fail_with
        self.fail_after = fail_after
        self.pause_s = pause_s
        self.finish = finish
        self.stop_token_id = stop_token_id
        self.stop_string = stop_string
        self.logprob = logprob
        self.commands: list[GenerateCommand] = []
        self.num_running = 0
        self.num_closed = 0  # generations that ended before their last event
        self._changed = asyncio.Event()

    def models(self) -> Sequence[ModelCard]:
        return (ModelCard(id="tiny", max_model_len=128, vocab_size=600, created_s=1_700_000_000),)

    def begin(self, command: GenerateCommand, on_news: Callable[[], None]) -> ScriptedFeed:
        return ScriptedFeed(command.request_id, self.generate(command), on_news)

    async def generate(self, command: GenerateCommand) -> AsyncGenerator[GenerateEvent, None]:
        self.commands.append(command)
        self.num_running += 1
        self._changed.set()
        ended = False
        try:
            if command.model not in ("", "tiny"):
                raise ModelNotFoundError(command.model, ("tiny",))
            for position, event in enumerate(self._events(command)):
                await asyncio.sleep(self.pause_s)
                if self.fail_with is not None and position >= self.fail_after:
                    raise self.fail_with
                ended = event.usage is not None
                yield event
        finally:
            self.num_running -= 1
            self.num_closed += not ended
            self._changed.set()

    async def until(self, *, num_running: int, num_closed: int = 0) -> None:
        """Waits a second at most until that many run, and that many were closed early."""
        async with asyncio.timeout(1.0):
            while (self.num_running, self.num_closed) != (num_running, num_closed):
                self._changed.clear()
                await self._changed.wait()

    def _events(self, command: GenerateCommand) -> list[GenerateEvent]:
        sampling = command.sampling
        events = []
        for position, text in enumerate(self.texts):
            last = position == len(self.texts) - 1
            token = self._token(97 + position, sampling.logprobs or 0)
            choices = tuple(
                ChoiceDelta(
                    index=index,
                    first_index=position,
                    token_ids=(97 + position,),
                    text=text,
                    logprobs=() if sampling.logprobs is None else (token,),
                    finish_reason=self.finish if last else None,
                    stop_token_id=self.stop_token_id if last else None,
                    stop_string=self.stop_string if last else None,
                )
                for index in range(sampling.n)
            )
            first = position == 0
            prompt_logprobs = (self._token(98, sampling.prompt_logprobs or 0),)
            events.append(
                GenerateEvent(
                    choices=choices,
                    prompt_token_ids=(5, 98) if first and command.return_prompt_token_ids else None,
                    prompt_logprobs=prompt_logprobs if first and sampling.prompt_logprobs is not None else None,
                )
            )
        usage = Usage(prompt_tokens=7, cached_tokens=4, generated_tokens=len(self.texts) * sampling.n)
        return [*events, GenerateEvent(usage=usage, timings=TIMINGS, route=ROUTE)]

    def _token(self, token_id: int, num_top: int) -> TokenLogprob:
        top = tuple(TopLogprob(token_id=100 + rank, logprob=self.logprob - rank) for rank in range(num_top))
        return TokenLogprob(token_id=token_id, logprob=self.logprob, rank=1, top=top)


class ScriptedFeed:
    """An AnswerFeed of what an iterator brings. The next event is not asked for before the last one was taken."""

    def __init__(
        self, request_id: str, events: AsyncGenerator[GenerateEvent, None], on_news: Callable[[], None]
    ) -> None:
        self.request_id = request_id
        self._event: GenerateEvent | None = None
        self._taken = asyncio.Event()
        self._on_news = on_news
        self._failed = False
        self._reading = asyncio.create_task(self._read(events))
        self._reading.add_done_callback(lambda _: on_news())

    @property
    def ended(self) -> bool:
        return self._failed or (self._reading.done() and self._event is None)

    def take(self) -> GenerateEvent | None:
        event, self._event = self._event, None
        self._taken.set()
        if event is None and not self._failed and self._reading.done():
            self._failed = True
            self._reading.result()
        return event

    def close(self) -> None:
        self._reading.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait((self._reading,))

    async def _read(self, events: AsyncGenerator[GenerateEvent, None]) -> None:
        async with aclosing(events):
            async for event in events:
                self._event = event
                self._taken.clear()
                self._on_news()
                await self._taken.wait()
