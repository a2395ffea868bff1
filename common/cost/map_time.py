"""When a source should ask where a prompt's blocks go: late, since a place that waits for KV is memory nobody uses."""

from __future__ import annotations

from common.cost.step_times import StepTimes

# Asked for earlier than the transfer needs by this factor: rates waver, and the last chunk should hide the most.
MARGIN = 1.25
# The answer waits for a round trip, and for the step that decode is in.
ANSWER_S = 0.03


def map_in_s(
    *, num_tokens: int, num_computed_tokens: int, chunk_tokens: int, times: StepTimes, token_transfer_s: float
) -> float:
    """Seconds until the last moment at which the transfer still hides behind computing; 0: it is time.

    Only what is computed before the last chunk can hide: the chunk itself is sent when nothing is left to compute.
    Judge it anew with each chunk, since prompts that share steps take longer.
    """
    num_left = num_tokens - num_computed_tokens
    if num_left <= 0:
        return 0.0
    num_hidden_tokens = num_tokens - (num_left % chunk_tokens or chunk_tokens)
    left_s = times.prefill_s(num_left, num_computed_tokens, chunk_tokens)
    return max(0.0, left_s - MARGIN * num_hidden_tokens * token_transfer_s - ANSWER_S)
