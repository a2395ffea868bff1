"""Refuses early what can't be in time: a queue that ends after the deadline only wastes work."""

from __future__ import annotations

from common.errors import OverloadedError
from router.planning.plan import Plan


def check_deadline(plan: Plan, *, left_s: float | None, num_wanted_tokens: int) -> None:
    """Raises OverloadedError with a hint when even the least that the request asks for is foretold to come late.

    `num_wanted_tokens` is that least: its `min_tokens`, or one.
    """
    if left_s is None or plan.predicted_ttft_s is None:
        return
    needed_s = plan.predicted_ttft_s + (num_wanted_tokens - 1) * (plan.predicted_tpot_s or 0.0)
    if needed_s > left_s:
        wanted = "the first token" if num_wanted_tokens == 1 else f"token {num_wanted_tokens}"
        raise OverloadedError(
            f"deadline_ms: {wanted} is expected in {needed_s * 1000:.0f} ms, "
            f"but only {max(0.0, left_s) * 1000:.0f} ms are left",
            retry_after_s=max(0.1, needed_s - left_s),
        )
