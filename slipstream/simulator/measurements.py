"""What the simulated requests went through, kept in arrays."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from slipstream.simulator.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What an answer must meet to count as good; None: no bound."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def met(self, ttft_s: float, tpot_s: float | None) -> bool:
        return (self.ttft_s is None or ttft_s <= self.ttft_s) and (
            self.tpot_s is None or tpot_s is None or tpot_s <= self.tpot_s
        )


@dataclass(slots=True, kw_only=True)
class Measurements:
    """Owned by one simulation. Seconds, one entry per answered request; `tpot_s` only where there is a second token."""

    slo: Slo = field(default_factory=Slo)
    ttft_s: array[float] = field(default_factory=lambda: array("d"))
    tpot_s: array[float] = field(default_factory=lambda: array("d"))
    e2e_s: array[float] = field(default_factory=lambda: array("d"))
    hand_over_s: array[float] = field(default_factory=lambda: array("d"))
    num_rejected: int = 0
    num_good: int = 0
    num_hit_blocks: int = 0
    num_blocks: int = 0
    num_new_tokens: int = 0
    num_refusals: int = 0
    num_lost: int = 0
    num_transferred_bytes: float = 0.0
    last_end_s: float = 0.0

    @property
    def num_answered(self) -> int:
        return len(self.ttft_s)

    @property
    def num_bad(self) -> int:
        """Requests that have ended without meeting the SLO."""
        return self.num_answered + self.num_rejected - self.num_good

    def reject(self) -> None:
        """A request that no worker could ever hold, or lived to answer."""
        self.num_rejected += 1

    def add(self, job: Job, now_s: float, hand_over_s: float | None) -> None:
        """A request has its last token."""
        request = job.request
        assert job.first_token_s is not None
        ttft_s = job.first_token_s - request.arrival_s
        tpot_s = None
        self.ttft_s.append(ttft_s)
        self.e2e_s.append(now_s - request.arrival_s)
        if request.num_new_tokens > 1:
            tpot_s = (now_s - job.first_token_s) / (request.num_new_tokens - 1)
            self.tpot_s.append(tpot_s)
        if hand_over_s is not None:
            self.hand_over_s.append(hand_over_s)
        self.num_good += self.slo.met(ttft_s, tpot_s)
        self.num_hit_blocks += job.num_hit_blocks
        self.num_blocks += len(request.block_ids)
        self.num_new_tokens += request.num_new_tokens
        self.last_end_s = max(self.last_end_s, now_s)


def percentile(values: list[float], share: float) -> float:
    """Of sorted values, the least that at least `share` of them don't exceed."""
    return values[min(len(values) - 1, max(0, -int(-share * len(values) // 1) - 1))]
