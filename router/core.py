"""The router's core: takes commands from the front ends, and brings the answers of the fleet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from common.errors import SlipstreamError
from common.net.patience import Patience
from router.access.tenant_limits import TenantLease, TenantLimits
from router.admission import Admission, AdmittedRequest
from router.answer import Answer
from router.conductor import Conductor, Means
from router.fleet import Fleet
from router.gate import Gate
from router.generation import GenerateCommand, GenerateEvent, ModelCard
from router.metrics import RouterMetrics, outcome_of
from router.text import TextWorkers


class RouterCore:
    """Implements `Generator`. Owned by the event loop."""

    def __init__(
        self,
        *,
        model_name: str,
        text: TextWorkers,
        fleet: Fleet,
        admission: Admission,
        means: Means,
        metrics: RouterMetrics,
        gate: Gate,
        limits: TenantLimits | None = None,
    ) -> None:
        self._model_name = model_name
        self._text = text
        self._fleet = fleet
        self._admission = admission
        self._means = means
        self._metrics = metrics
        self.gate = gate
        self._limits = limits or TenantLimits()
        self._created_s = int(time.time())
        self.answers: set[Answer] = set()  # of admitted requests that have not ended

    async def generate(self, command: GenerateCommand) -> AsyncGenerator[GenerateEvent, None]:
        """See `Generator.generate`."""
        try:
            self._check_deadline(command)
            lease = self._enter(command)
        except SlipstreamError as error:
            self._observe(command, None, outcome_of(error))
            self._metrics.observe_tenant(command.tenant, outcome_of(error), 0)
            raise
        self._metrics.request_started(command)
        answer = None
        outcome = outcome_of(asyncio.CancelledError())
        try:
            admitting = asyncio.create_task(self._admission.admit(command))
            async for beat in _beats_until(admitting, command.heartbeat_s):
                yield beat
            request = admitting.result()
            lease.charge(len(request.prompt_token_ids))
            answer = await self._begin(request)
            self.answers.add(answer)
            async for event in self._conduct(request, answer):
                lease.charge(sum(len(choice.token_ids) for choice in event.choices))
                yield event
            outcome = outcome_of(None, answer.choices[0].finish_reason)
        except Exception as error:
            outcome = outcome_of(error)
            raise
        finally:
            if answer is not None:
                self.answers.discard(answer)
            lease.release()
            self.gate.leave()
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
        """A place among the router's and among the tenant's requests. Raises what `Gate` and `TenantLimits` raise."""
        self.gate.enter(resumed=command.resume_from is not None)
        try:
            return self._limits.admit(command.tenant)
        except SlipstreamError:
            self.gate.leave()
            raise

    def _check_deadline(self, command: GenerateCommand) -> None:
        """Before anything is done for a request: what is refused must be cheap when much is."""
        pinned = command.route.prefill_worker or command.route.decode_worker
        if command.deadline_s is None or command.resume_from is not None or pinned or command.canary:
            return
        now_s = time.monotonic()
        self._means.room.check_deadline(command.priority, now_s, command.deadline_s, command.sampling)

    async def _begin(self, request: AdmittedRequest) -> Answer:
        answer = Answer(request, self._text.text)
        point = request.command.resume_from
        if point is not None:
            await self._text.run(lambda: answer.resume(point))
            self._metrics.count_resumed()
        return answer

    def _observe(self, command: GenerateCommand, answer: Answer | None, outcome: str) -> None:
        last = GenerateEvent() if answer is None else answer.last_event()
        # What a resumed answer took is known to its caller alone.
        timings = last.timings if command.resume_from is None else None
        self._metrics.observe(command, usage=last.usage, timings=timings, route=last.route, outcome=outcome)

    async def _conduct(self, request: AdmittedRequest, answer: Answer) -> AsyncIterator[GenerateEvent]:
        self.gate.check_cut()
        conducting = asyncio.create_task(Conductor(request, answer, self._means).run())
        self.gate.watch(conducting)
        conducting.add_done_callback(lambda _: answer.wake())
        patience = Patience(request.command.heartbeat_s)
        try:
            while not conducting.done():
                try:
                    with patience:
                        await answer.wait()
                except TimeoutError:
                    yield GenerateEvent()
                    continue
                if (event := answer.take()) is not None:
                    yield event
            if (event := answer.take()) is not None:
                yield event
            if conducting.cancelled():
                self.gate.check_cut()
            await conducting
            yield answer.last_event()
        finally:
            patience.close()
            conducting.cancel()
            await asyncio.gather(conducting, return_exceptions=True)


async def _beats_until(task: asyncio.Task[AdmittedRequest], heartbeat_s: float | None) -> AsyncIterator[GenerateEvent]:
    """Signs of life until the task is done; it is cancelled when nobody waits for it any more."""
    try:
        while not (await asyncio.wait({task}, timeout=heartbeat_s))[0]:
            yield GenerateEvent()
    finally:
        task.cancel()
