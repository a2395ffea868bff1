"""When a source should ask where a prompt's blocks go: late, since a place that waits for KV is memory nobody uses."""

from __future__ import annotations

from common.cost.step_times import StepTimes

# Asked for earlier than the transfer needs by this factor: rates waver, and the last chunk should hide the most.
MARGIN = 1.25


def is_time_to_map(
    *, num_tokens: int, num_computed_tokens: int, chunk_tokens: int, times: StepTimes, transfer_s: float
) -> bool:
    """Whether what is left to compute after the next chunk takes no longer than moving the prompt's blocks.

    Judged once a chunk, so that is the last moment at which the transfer can still hide behind computing.
    """
    num_later = num_tokens - num_computed_tokens - chunk_tokens
    if num_later <= 0:
        return True
    return times.prefill_s(num_later, num_tokens - num_later, chunk_tokens) <= MARGIN * transfer_s
