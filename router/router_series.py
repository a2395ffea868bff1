"""The series of what a router counts and times itself. What workers report of themselves has modules of its own.

Times, tokens, bytes and ratios are of answers that were finished, and canary requests are in none of them.
"""

from __future__ import annotations

from common.errors import Status
from common.request import FinishReason
from router.planning.plan import PlanKind, PlanReason
from router.planning.prefix_miss import MissCause
from router.series import Kind, Label, Series

# Seconds. From a cached short prompt on a GPU to a 100,000-token prompt on a busy CPU.
LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2, 4, 10)
TOKEN_LATENCY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5)

# Who has no key or the wrong one is sent away before there is a request, and nothing of ours says ABORTED.
_NEVER_OUTCOMES = {Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.ABORTED}
OUTCOMES = tuple(dict.fromkeys((*FinishReason, *(one.lower() for one in Status if one not in _NEVER_OUTCOMES))))
OUTCOME = Label(name="outcome", values=OUTCOMES)
TENANT = Label(name="tenant", meaning="a tenant's name in the file of `--api-keys`")
WORKER_LOST = "worker_lost"

TTFT = Series(
    name="slipstream_ttft_seconds",
    kind=Kind.HISTOGRAM,
    help="Seconds from a request's arrival to its first token",
    buckets=LATENCY_BUCKETS,
)
TPOT = Series(
    name="slipstream_tpot_seconds",
    kind=Kind.HISTOGRAM,
    help="Mean seconds per token after a request's first, of answers of more than one token",
    buckets=TOKEN_LATENCY_BUCKETS,
)
E2E = Series(
    name="slipstream_e2e_seconds",
    kind=Kind.HISTOGRAM,
    help="Seconds from a request's arrival until its caller had taken the whole answer",
    buckets=LATENCY_BUCKETS,
)
QUEUE = Series(
    name="slipstream_queue_seconds",
    kind=Kind.HISTOGRAM,
    help="Seconds from a request's arrival to the first step of its prefill, in the router's and the worker's queue",
    buckets=LATENCY_BUCKETS,
)
REQUESTS = Series(
    name="slipstream_requests_total",
    kind=Kind.COUNTER,
    help="Requests that ended, by finish reason or else by gRPC status",
    labels=(OUTCOME,),
)
PROMPT_TOKENS = Series(
    name="slipstream_prompt_tokens_total", kind=Kind.COUNTER, help="Prompt tokens of finished answers"
)
CACHED_TOKENS = Series(
    name="slipstream_cached_tokens_total",
    kind=Kind.COUNTER,
    help="Those of the prompt tokens whose KV was cached where the prompt was computed, and reused",
)
GENERATED_TOKENS = Series(
    name="slipstream_generated_tokens_total", kind=Kind.COUNTER, help="Tokens of finished answers, all choices together"
)
ACTIVE = Series(
    name="slipstream_active_requests",
    kind=Kind.GAUGE,
    help="Requests inside the router now: waiting, or being answered",
)
RETRIES = Series(
    name="slipstream_retries_total",
    kind=Kind.COUNTER,
    help="Attempts lost: the worker died, hung, left or cancelled, or a transfer failed; planned again while "
    "max_attempts allows",
    labels=(Label(name="reason", values=(WORKER_LOST,)),),
)
RESUMED = Series(
    name="slipstream_resumed_requests_total",
    kind=Kind.COUNTER,
    help="Answers that another router had begun and that went on here",
)
DECISIONS = Series(
    name="slipstream_route_decisions_total",
    kind=Kind.COUNTER,
    help="Plans that workers were asked to carry out, retries included, by kind and by why it was this kind",
    labels=(Label(name="decision", values=tuple(PlanKind)), Label(name="reason", values=tuple(PlanReason))),
)
MISSED_TOKENS = Series(
    name="slipstream_prefix_miss_tokens_total",
    kind=Kind.COUNTER,
    help="Those of the prompt tokens that were computed, by why they were not cached",
    labels=(Label(name="cause", values=tuple(MissCause)),),
)
TTFT_RATIO = Series(
    name="slipstream_ttft_actual_over_predicted",
    kind=Kind.HISTOGRAM,
    help="Time to first token over what the request's first plan foretold, a ratio; above 1: later than foretold",
    buckets=RATIO_BUCKETS,
)
TPOT_RATIO = Series(
    name="slipstream_tpot_actual_over_predicted",
    kind=Kind.HISTOGRAM,
    help="Time per token after the first over what the request's first plan foretold, a ratio; above 1: slower than "
    "foretold",
    buckets=RATIO_BUCKETS,
)
SLO = Series(
    name="slipstream_slo_requests_total",
    kind=Kind.COUNTER,
    help="Answers to requests that named an objective (ttft_slo_ms, tpot_slo_ms), by whether it was met",
    labels=(Label(name="objective", values=("ttft", "tpot")), Label(name="met", values=("true", "false"))),
)
INDEX_DEGRADED = Series(
    name="slipstream_index_degraded",
    kind=Kind.GAUGE,
    help="1 while some shard of the prefix index does not answer this router, else 0",
)
INDEX_DEGRADED_SHARDS = Series(
    name="slipstream_index_degraded_shards",
    kind=Kind.GAUGE,
    help="Shards of the prefix index that do not answer this router now",
)
TRANSFER_BYTES = Series(
    name="slipstream_transfer_bytes_total",
    kind=Kind.COUNTER,
    help="Bytes of KV that prefill workers handed over to decode workers",
)
PREEMPTIONS = Series(
    name="slipstream_preemptions_total",
    kind=Kind.COUNTER,
    help="Times that a decode worker handed a choice back for want of KV blocks, to be computed again",
)
TENANT_REQUESTS = Series(
    name="slipstream_tenant_requests_total",
    kind=Kind.COUNTER,
    help="Requests of a tenant that ended, by finish reason or else by gRPC status",
    labels=(TENANT, OUTCOME),
)
TENANT_TOKENS = Series(
    name="slipstream_tenant_tokens_total",
    kind=Kind.COUNTER,
    help="Prompt and generated tokens that a tenant's requests took, whatever became of them",
    labels=(TENANT,),
)
ROUTER_SERIES = (
    TTFT,
    TPOT,
    E2E,
    QUEUE,
    REQUESTS,
    ACTIVE,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    GENERATED_TOKENS,
    MISSED_TOKENS,
    DECISIONS,
    RETRIES,
    RESUMED,
    PREEMPTIONS,
    TRANSFER_BYTES,
    TTFT_RATIO,
    TPOT_RATIO,
    SLO,
    INDEX_DEGRADED,
    INDEX_DEGRADED_SHARDS,
    TENANT_REQUESTS,
    TENANT_TOKENS,
)
