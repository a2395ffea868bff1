"""How long other routers should believe that a worker will hold a prefix which it was just given to compute."""

from __future__ import annotations

from router.planning.plan import Plan

# What the index allows: a promise that is not kept must not mislead for long.
MAX_LIFE_S = 15.0
# Beyond the expected time, for what other routers send at the same time, and for the worker's own entry to come.
GRACE_S = 2.0
# Behind a queue that several routers fill, prompts are computed later than each of them foretells.
LATENESS = 2.0


def speculation_s(plan: Plan) -> float:
    """Seconds. Too short a life sends siblings of a request that waits to other workers, which compute it again."""
    candidate = plan.computing.candidate
    return min(MAX_LIFE_S, GRACE_S + LATENESS * (candidate.queue_s + candidate.prefill_s))
