"""What a trace asks for at best: the ceiling of its hit rate, and the prefill work that is left then."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.simulator.profile import Profile
from slipstream.simulator.step_model import prefill_s
from slipstream.simulator.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedLoad:
    """Under an infinite cache shared by all, filled in the order of the trace."""

    num_requests: int
    num_tokens: int
    num_new_tokens: int
    num_blocks: int
    num_hit_blocks: int
    prefill_s: float
    duration_s: float  # from the first arrival to the last

    @property
    def hit_rate(self) -> float:
        return self.num_hit_blocks / self.num_blocks if self.num_blocks else 0.0

    def utilization(self, num_prefill: int) -> float:
        """Share of the capacity of so many perfectly balanced workers."""
        return self.prefill_s / num_prefill / self.duration_s if self.duration_s else 0.0


def offered_load(trace: Trace, profile: Profile) -> OfferedLoad:
    """Reads the trace once."""
    seen: set[int] = set()
    num_requests = num_tokens = num_new_tokens = num_blocks = num_hit_blocks = 0
    work_s = first_s = last_s = 0.0
    for request in trace:
        if not num_requests:
            first_s = request.arrival_s
        last_s = request.arrival_s
        num_held = 0
        for block_id in request.block_ids:
            if block_id not in seen:
                break
            num_held += 1
        seen.update(request.block_ids[num_held:])
        num_requests += 1
        num_tokens += request.num_tokens
        num_new_tokens += request.num_new_tokens
        num_blocks += len(request.block_ids)
        num_hit_blocks += num_held
        work_s += prefill_s(profile.model, request.num_tokens, num_held * trace.block_size, profile.chunk_tokens)
    return OfferedLoad(
        num_requests=num_requests,
        num_tokens=num_tokens,
        num_new_tokens=num_new_tokens,
        num_blocks=num_blocks,
        num_hit_blocks=num_hit_blocks,
        prefill_s=work_s,
        duration_s=last_s - first_s,
    )
