"""The router's core: takes commands from the front ends, and brings the answers of the fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from common.errors import OverloadedError
from router.access.tenant_limits import TenantLease, TenantLimits
from router.admission import Admission, AdmittedRequest
from router.answer import Answer
from router.conductor import Conductor, Means
from router.fleet import Fleet
from router.generation import GenerateCommand, GenerateEvent, ModelCard
from router.metrics import RouterMetrics, outcome_of
from router.text import TextModel


class RouterCore:
    """Implements `Generator`. Owned by the event loop."""

    def __init__(
        self,
        *,
        model_name: str,
        text: TextModel,
        fleet: Fleet,
        admission: Admission,
        means: Means,
        metrics: RouterMetrics,
        max_num_requests: int,
        limits: TenantLimits | None = None,
    ) -> None:
        self._model_name = model_name
        self._text = text
        self._fleet = fleet
        self._admission = admission
        self._means = means
        self._metrics = metrics
        self._max_num_requests = max_num_requests
        self._limits = limits or TenantLimits()
        self._created_s = int(time.time())
        self.num_active_requests = 0

    async def generate(self, command: GenerateCommand) -> AsyncIterator[GenerateEvent]:
        """See `Generator.generate`."""
        try:
            lease = self._enter(command)
        except OverloadedError as error:
            self._observe(command, None, outcome_of(error))
            self._metrics.observe_tenant(command.tenant, outcome_of(error), 0)
            raise
        self.num_active_requests += 1
        self._metrics.request_started(command)
        answer = None
        outcome = outcome_of(asyncio.CancelledError())
        try:
            request = await self._admission.admit(command)
            lease.charge(len(request.prompt_token_ids))
            answer = Answer(request, self._text)
            async for event in self._conduct(request, answer):
                lease.charge(sum(len(choice.token_ids) for choice in event.choices))
                yield event
            outcome = outcome_of(None, answer.choices[0].finish_reason)
        except Exception as error:
            outcome = outcome_of(error)
            raise
        finally:
            self.num_active_requests -= 1
            lease.release()
            self._metrics.request_ended(command)
            self._metrics.observe_tenant(command.tenant, outcome, lease.num_tokens)
            self._observe(command, answer if answer is not None and answer.finished else None, outcome)

    def models(self) -> Sequence[ModelCard]:
        worker = self._fleet.try_reference()
        return [
            ModelCard(
                id=self._model_name,
                max_model_len=None if worker is None else worker.max_model_len,
                vocab_size=None if worker is None else worker.vocab_size,
                created_s=self._created_s,
            )
        ]

    def _enter(self, command: GenerateCommand) -> TenantLease:
        """A place among the router's and among the tenant's requests. Raises OverloadedError."""
        if self.num_active_requests >= self._max_num_requests:
            raise OverloadedError(f"{self._max_num_requests} requests are active, which is this router's limit")
        return self._limits.admit(command.tenant)

    def _observe(self, command: GenerateCommand, answer: Answer | None, outcome: str) -> None:
        last = GenerateEvent() if answer is None else answer.last_event()
        self._metrics.observe(command, usage=last.usage, timings=last.timings, route=last.route, outcome=outcome)

    async def _conduct(self, request: AdmittedRequest, answer: Answer) -> AsyncIterator[GenerateEvent]:
        conducting = asyncio.create_task(Conductor(request, answer, self._means).run())
        conducting.add_done_callback(lambda _: answer.wake())
        try:
            while not conducting.done():
                await answer.wait()
                if (event := answer.take()) is not None:
                    yield event
            if (event := answer.take()) is not None:
                yield event
            await conducting
            yield answer.last_event()
        finally:
            conducting.cancel()
            await asyncio.gather(conducting, return_exceptions=True)
