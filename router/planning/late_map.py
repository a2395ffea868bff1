"""Whether decode should give a prompt's blocks their places at once, or when prefill asks for them."""

from __future__ import annotations

from common.net.protocol import LATE_MAP_VERSION
from router.planning.plan import Plan
from router.worker_info import WorkerInfo

# Places that wait for KV are memory that nobody uses; asking for them costs a round trip, which a short prompt on an
# idle worker would wait for.
MAX_CHUNKS_AT_ONCE = 2
MAX_QUEUE_S_AT_ONCE = 0.05


def map_after_s(plan: Plan, prefill: WorkerInfo) -> float | None:
    """Seconds until the prefill worker is expected to ask; None: it should know the places from the start."""
    candidate = plan.computing.candidate
    num_tokens = plan.num_tokens - candidate.num_cached_tokens
    is_short = num_tokens <= MAX_CHUNKS_AT_ONCE * prefill.chunk_tokens
    if prefill.protocol_version < LATE_MAP_VERSION or (is_short and candidate.queue_s <= MAX_QUEUE_S_AT_ONCE):
        return None
    return candidate.queue_s + candidate.prefill_s
