"""The router's Prometheus metrics. One registry per router object; nothing is global.

Canary requests are never counted: they would make an idle fleet look fast and used.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from common.errors import SlipstreamError, Status
from common.request import FinishReason
from router import router_series as series
from router.access.tenant import Tenant
from router.generation import GenerateCommand, RouteTaken, Timings, Usage
from router.planning.plan import Plan, PlanKind, PlanReason
from router.planning.prefix_miss import PrefixMiss


class RouterMetrics:
    """Counts and times of one router, told as `router_series` says. Called on the event loop; rendering is safe from
    any thread."""

    def __init__(self) -> None:
        # A time of birth beside each series doubles what is scraped. The library knows no narrower switch.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        self._ttft = series.TTFT.histogram(registry)
        self._tpot = series.TPOT.histogram(registry)
        self._e2e = series.E2E.histogram(registry)
        self._queue = series.QUEUE.histogram(registry)
        self._requests = series.REQUESTS.counter(registry)
        self._active = series.ACTIVE.gauge(registry)
        self._prompt_tokens = series.PROMPT_TOKENS.counter(registry)
        self._cached_tokens = series.CACHED_TOKENS.counter(registry)
        self._generated_tokens = series.GENERATED_TOKENS.counter(registry)
        self._missed_tokens = series.MISSED_TOKENS.counter(registry)
        self._decisions = series.DECISIONS.counter(registry)
        self._retries = series.RETRIES.counter(registry)
        self._resumed = series.RESUMED.counter(registry)
        self._preemptions = series.PREEMPTIONS.counter(registry)
        self._transfer_bytes = series.TRANSFER_BYTES.counter(registry)
        self._ttft_ratio = series.TTFT_RATIO.histogram(registry)
        self._tpot_ratio = series.TPOT_RATIO.histogram(registry)
        self._slo = series.SLO.counter(registry)
        self._index_degraded = series.INDEX_DEGRADED.gauge(registry)
        self._index_degraded_shards = series.INDEX_DEGRADED_SHARDS.gauge(registry)
        self._tenant_requests = series.TENANT_REQUESTS.counter(registry)
        self._tenant_tokens = series.TENANT_TOKENS.counter(registry)

    def request_started(self, command: GenerateCommand) -> None:
        if not command.canary:
            self._active.inc()

    def request_ended(self, command: GenerateCommand) -> None:
        """Once for each `request_started`, whatever the outcome."""
        if not command.canary:
            self._active.dec()

    def observe(
        self,
        command: GenerateCommand,
        *,
        usage: Usage | None,
        timings: Timings | None,
        route: RouteTaken | None,
        outcome: str,
    ) -> None:
        """One request that ended. What it did not come to (no usage, no timings) is None and not counted.

        `outcome` is from `outcome_of`.
        """
        if command.canary:
            return
        self._requests.labels(outcome=outcome).inc()
        if usage is not None:
            self._prompt_tokens.inc(usage.prompt_tokens)
            self._cached_tokens.inc(usage.cached_tokens)
            self._generated_tokens.inc(usage.generated_tokens)
        if timings is not None:
            self._observe_timings(command, timings, usage)
        if route is not None:
            self._transfer_bytes.inc(route.transferred_bytes)
            self._preemptions.inc(route.preemptions)

    def observe_tenant(self, tenant: Tenant | None, outcome: str, num_tokens: int) -> None:
        """What a request that ended took of its tenant's tokens, whatever became of it. Nobody is not counted."""
        if tenant is not None:
            self._tenant_requests.labels(tenant=tenant.name, outcome=outcome).inc()
            self._tenant_tokens.labels(tenant=tenant.name).inc(num_tokens)

    def count_lost_attempt(self, command: GenerateCommand) -> None:
        """An attempt that has to be made again elsewhere, whatever became of its worker."""
        if not command.canary:
            self._retries.labels(reason=series.WORKER_LOST).inc()

    def count_resumed(self) -> None:
        """An answer goes on here that another router has begun."""
        self._resumed.inc()

    def count_decision(self, command: GenerateCommand, decision: PlanKind, reason: PlanReason) -> None:
        """A plan that is about to be carried out."""
        if not command.canary:
            self._decisions.labels(decision=decision, reason=reason).inc()

    def observe_plan(self, command: GenerateCommand, plan: Plan, ttft_s: float, tpot_s: float | None) -> None:
        """What became of a request's first plan."""
        if command.canary:
            return
        if plan.predicted_ttft_s:
            self._ttft_ratio.observe(ttft_s / plan.predicted_ttft_s)
        if plan.predicted_tpot_s and tpot_s is not None:
            self._tpot_ratio.observe(tpot_s / plan.predicted_tpot_s)

    def count_misses(self, command: GenerateCommand, miss: PrefixMiss) -> None:
        """The prompt tokens of a request that had to be computed, by cause."""
        if not command.canary:
            for cause, num_tokens in miss.tokens.items():
                self._missed_tokens.labels(cause=cause.value).inc(num_tokens)

    def set_index_degraded(self, num_shards: int) -> None:
        """How many of the index's shards don't answer."""
        self._index_degraded.set(num_shards > 0)
        self._index_degraded_shards.set(num_shards)

    def render(self) -> tuple[bytes, str]:
        """The exposition text and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def _observe_timings(self, command: GenerateCommand, timings: Timings, usage: Usage | None) -> None:
        self._ttft.observe(timings.ttft_s)
        self._e2e.observe(timings.total_s)
        self._queue.observe(timings.queue_s)
        self._count_slo("ttft", command.ttft_slo_s, timings.ttft_s)
        # The choices of one request decode side by side, so each has its share of the tokens.
        tokens_per_choice = usage.generated_tokens / command.sampling.n if usage is not None else 0.0
        if tokens_per_choice > 1.0:
            tpot_s = (timings.total_s - timings.ttft_s) / (tokens_per_choice - 1.0)
            self._tpot.observe(tpot_s)
            self._count_slo("tpot", command.tpot_slo_s, tpot_s)

    def _count_slo(self, objective: str, wanted_s: float | None, actual_s: float) -> None:
        if wanted_s is not None:
            self._slo.labels(objective=objective, met=str(actual_s <= wanted_s).lower()).inc()


def outcome_of(error: BaseException | None, finish_reason: FinishReason | None = None) -> str:
    """The `outcome` label of a request: stop, length, cancelled, or the status that it failed with."""
    if error is None:
        return str(finish_reason or FinishReason.STOP)
    if isinstance(error, SlipstreamError):
        return error.status.lower()
    # Closing the iterator or cancelling the task is how a caller goes away.
    if isinstance(error, Exception):
        return Status.INTERNAL.lower()
    return Status.CANCELLED.lower()
