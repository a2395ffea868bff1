"""The router's core: takes commands from the front ends, and brings the answers of the fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set

from common.errors import SlipstreamError
from router.access.tenant_limits import TenantLease, TenantLimits
from router.answer import Answer
from router.fleet import Fleet
from router.gate import Gate
from router.generation import GenerateCommand, ModelCard
from router.metrics import outcome_of
from router.ongoing_request import OngoingRequest, Services


class RouterCore:
    """Implements `Generator`. Owned by the event loop."""

    def __init__(
        self, *, model_name: str, fleet: Fleet, services: Services, limits: TenantLimits | None = None
    ) -> None:
        self._model_name = model_name
        self._fleet = fleet
        self._services = services
        self._limits = limits or TenantLimits()
        self._created_s = int(time.time())

    @property
    def gate(self) -> Gate:
        return self._services.gate

    @property
    def answers(self) -> Set[Answer]:
        """Of admitted requests that have not ended."""
        return self._services.answers

    def begin(self, command: GenerateCommand, on_news: Callable[[], None]) -> OngoingRequest:
        """See `Generator.begin`."""
        metrics = self._services.metrics
        try:
            self._check_deadline(command)
            lease = self._enter(command)
        except SlipstreamError as error:
            metrics.observe(command, usage=None, timings=None, route=None, outcome=outcome_of(error))
            metrics.observe_tenant(command.tenant, outcome_of(error), 0)
            raise
        metrics.request_started(command)
        return OngoingRequest(command, lease, self._services, on_news)

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
        self._services.means.room.check_deadline(command.priority, now_s, command.deadline_s, command.sampling)
