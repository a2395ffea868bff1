"""One request at the router, from the door to the end of its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from common.errors import RequestCancelledError
from router.access.tenant_limits import TenantLease
from router.admission import Admission
from router.answer import Answer
from router.conductor import Conductor, Means
from router.gate import Gate
from router.generation import GenerateCommand, GenerateEvent
from router.metrics import RouterMetrics, outcome_of
from router.text import TextWorkers


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What serving requests needs, the same for all. `answers`: of admitted requests that have not ended."""

    text: TextWorkers
    admission: Admission
    means: Means
    metrics: RouterMetrics
    gate: Gate
    answers: set[Answer] = field(default_factory=set)


class OngoingRequest:
    """Implements `AnswerFeed`. Begun inside the gate and with a lease; gives both back when its work has ended and
    the caller has taken everything or closed it. Owned by the event loop."""

    def __init__(
        self, command: GenerateCommand, lease: TenantLease, services: Services, on_news: Callable[[], None]
    ) -> None:
        self._command = command
        self._lease = lease
        self._services = services
        self._on_news = on_news
        self._answer: Answer | None = None
        self._outcome = outcome_of(asyncio.CancelledError())
        self._told_last = self._failed = self._closed = self._left = False
        self._loop = asyncio.get_running_loop()
        self._spoke_s = self._loop.time()
        self._beat_due = False
        self._beating: asyncio.TimerHandle | None = None
        if command.heartbeat_s is not None:
            self._beating = self._loop.call_later(command.heartbeat_s, self._beat, command.heartbeat_s)
        self._working = asyncio.create_task(self._work())
        services.gate.watch(self._working)
        self._working.add_done_callback(self._work_ended)

    @property
    def request_id(self) -> str:
        """See `AnswerFeed`, as for what follows."""
        return self._command.request_id

    @property
    def ended(self) -> bool:
        return self._told_last or self._failed

    def take(self) -> GenerateEvent | None:
        answer = self._answer
        if answer is not None and (event := answer.take()) is not None:
            self._lease.charge(sum([len(choice.token_ids) for choice in event.choices]))
            self._spoke_s = self._loop.time()
            return event
        if self._working.done():
            return self._take_last()
        if self._beat_due:
            self._beat_due = False
            self._spoke_s = self._loop.time()
            return GenerateEvent()
        return None

    def close(self) -> None:
        self._closed = True
        self._working.cancel()
        if self._working.done():
            self._leave()

    async def wait_closed(self) -> None:
        await asyncio.wait((self._working,))

    async def _work(self) -> None:
        services = self._services
        request = await services.admission.admit(self._command)
        self._lease.charge(len(request.prompt_token_ids))
        answer = Answer(request, services.text.text, self._on_news)
        if (point := self._command.resume_from) is not None:
            await services.text.run(lambda: answer.resume(point))
            services.metrics.count_resumed()
            self._on_news()
        self._answer = answer
        services.answers.add(answer)
        try:
            await Conductor(request, answer, services.means).run()
        finally:
            services.answers.discard(answer)

    def _work_ended(self, working: asyncio.Task[None]) -> None:
        if not working.cancelled():
            working.exception()  # taken by whoever takes the answer, if anybody still does
        if self._beating is not None:
            self._beating.cancel()
        if self._closed:
            self._leave()
        else:
            self._on_news()

    def _take_last(self) -> GenerateEvent | None:
        if self.ended:
            return None
        try:
            if self._working.cancelled():
                self._services.gate.check_cut()
                raise RequestCancelledError("the request was cancelled")
            self._working.result()
        except Exception as error:
            self._failed = True
            self._outcome = outcome_of(error)
            raise
        assert self._answer is not None
        self._told_last = True
        self._outcome = outcome_of(None, self._answer.choices[0].finish_reason)
        return self._answer.last_event()

    def _beat(self, every_s: float) -> None:
        silent_s = self._loop.time() - self._spoke_s
        if silent_s >= every_s:
            self._beat_due = True
            self._on_news()
            silent_s = 0.0
        self._beating = self._loop.call_later(every_s - silent_s, self._beat, every_s)

    def _leave(self) -> None:
        if self._left:
            return
        self._left = True
        command, metrics = self._command, self._services.metrics
        self._lease.release()
        self._services.gate.leave()
        metrics.request_ended(command)
        metrics.observe_tenant(command.tenant, self._outcome, self._lease.num_tokens)
        answered = self._answer is not None and self._answer.finished
        last = self._answer.last_event() if self._answer is not None and answered else GenerateEvent()
        # What a resumed answer took is known to its caller alone.
        timings = last.timings if command.resume_from is None else None
        metrics.observe(command, usage=last.usage, timings=timings, route=last.route, outcome=self._outcome)
