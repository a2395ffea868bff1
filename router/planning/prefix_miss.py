"""Why prompt tokens had to be computed although prefixes are cached: each uncached token has one cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class MissCause(StrEnum):
    """From the front of the prompt to its end."""

    STALE = "stale"  # the index said that the worker holds it, and it did not any more
    OTHER_WORKER = "other_worker"  # another one that could compute it holds it: the policy found this one cheaper
    EVICTED = "evicted"  # seen before, and nobody holds it now
    DIVERGED = "diverged"  # a seen prefix goes on otherwise from here
    FIRST_SEEN = "first_seen"  # nothing of this prompt was seen before
    BELOW_STRIDE = "below_stride"  # the end of the prompt, shorter than the index's stride


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMiss:
    """Uncached tokens by cause; causes without tokens are left out. `diverged_at` is the token where the prompt
    left what any of these workers, or this router, knew; None when it did not."""

    tokens: Mapping[MissCause, int]
    diverged_at: int | None = None


def explain_miss(
    *, num_tokens: int, num_cached: int, chosen_depth: int, best_depth: int, known_depth: int, stride: int
) -> PrefixMiss:
    """All are tokens from the prompt's start: what the worker reused; how deep the index had that worker, and the
    deepest of those that could have been chosen; how much of it the router had seen in earlier prompts."""
    # The last token is computed again in any case, so that no prompt is reused to its very end.
    in_points = min(num_tokens // stride * stride, num_tokens - 1)
    chosen_depth, best_depth, known_depth = (min(depth, in_points) for depth in (chosen_depth, best_depth, known_depth))
    seen = max(known_depth, best_depth, chosen_depth)
    bounds = (
        (MissCause.STALE, chosen_depth),
        (MissCause.OTHER_WORKER, best_depth),
        (MissCause.EVICTED, known_depth),
        (MissCause.DIVERGED if seen else MissCause.FIRST_SEEN, in_points),
        (MissCause.BELOW_STRIDE, num_tokens),
    )
    tokens: dict[MissCause, int] = {}
    reached = num_cached
    for cause, bound in bounds:
        if bound > reached:
            tokens[cause] = bound - reached
            reached = bound
    return PrefixMiss(tokens=tokens, diverged_at=seen if 0 < seen < in_points else None)
