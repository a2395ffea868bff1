"""The router's Prometheus metrics. One registry per router object; nothing is global.

Canary requests are never counted: they would make an idle fleet look fast and used.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from common.errors import SlipstreamError, Status
from common.request import FinishReason
from router.access.tenant import Tenant
from router.generation import GenerateCommand, RouteTaken, Timings, Usage
from router.planning.plan import Plan
from router.planning.prefix_miss import PrefixMiss

# Seconds. From a cached short prompt on a GPU to a 100,000-token prompt on a busy CPU.
LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2, 4, 10)
TOKEN_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)


class RouterMetrics:
    """Counts and times of one router. Called on the event loop; rendering is safe from any thread."""

    def __init__(self) -> None:
        # A time of birth beside each series doubles what is scraped. The library knows no narrower switch.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        times = partial(Histogram, registry=registry, buckets=LATENCY_BUCKETS)
        token_times = partial(Histogram, registry=registry, buckets=TOKEN_LATENCY_BUCKETS)
        ratios = partial(Histogram, registry=registry, buckets=RATIO_BUCKETS)

        self._requests = counter("slipstream_requests", "Requests that ended", ["outcome"])
        self._active = gauge("slipstream_active_requests", "Requests being served")
        self._resumed = counter("slipstream_resumed_requests", "Answers that another router began")
        self._slo = counter("slipstream_slo_requests", "Requests that named an objective", ["objective", "met"])
        self._prompt_tokens = counter("slipstream_prompt_tokens", "Prompt tokens")
        self._cached_tokens = counter("slipstream_cached_tokens", "Prompt tokens whose KV was reused")
        self._missed_tokens = counter("slipstream_prefix_miss_tokens", "Prompt tokens computed, by why", ["cause"])
        self._generated_tokens = counter("slipstream_generated_tokens", "Tokens generated")

        self._ttft = times("slipstream_ttft_seconds", "Arrival to first token")
        self._tpot = token_times("slipstream_tpot_seconds", "Mean time per token after a request's first")
        self._e2e = times("slipstream_e2e_seconds", "Arrival to last token")
        self._queue = times("slipstream_queue_seconds", "Arrival to first prefill step")
        self._ttft_ratio = ratios(
            "slipstream_ttft_actual_over_predicted", "First token's time against the plan's prediction"
        )
        self._tpot_ratio = ratios(
            "slipstream_tpot_actual_over_predicted", "Time per token after the first against the plan's prediction"
        )

        self._decisions = counter("slipstream_route_decisions", "Plans made", ["decision", "reason"])
        self._retries = counter("slipstream_retries", "Requests planned again", ["reason"])
        self._transfer_bytes = counter("slipstream_transfer_bytes", "KV bytes sent between workers")
        self._preemptions = counter("slipstream_preemptions", "Times a worker handed a request back")
        self._index_degraded = gauge("slipstream_index_degraded", "1 while a part of the prefix index does not answer")
        self._index_degraded_shards = gauge(
            "slipstream_index_degraded_shards", "Shards of the prefix index that do not answer"
        )

        self._tenant_requests = counter(
            "slipstream_tenant_requests", "Requests of a tenant that ended", ["tenant", "outcome"]
        )
        self._tenant_tokens = counter("slipstream_tenant_tokens", "Prompt and generated tokens of a tenant", ["tenant"])

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

    def count_retry(self, command: GenerateCommand, reason: str) -> None:
        """`reason`: a word from a small fixed set (worker_lost, preempted, …), never an id or a message."""
        if not command.canary:
            self._retries.labels(reason=reason).inc()

    def count_resumed(self) -> None:
        """An answer goes on here that another router has begun."""
        self._resumed.inc()

    def count_decision(self, command: GenerateCommand, decision: str, reason: str) -> None:
        """`decision`: split, decode_only, …; `reason`: why, from a small fixed set."""
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
