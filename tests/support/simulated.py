"""Small traces and fleets for the simulator's tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from common.cost import StepTimes
from router.policy import Policy, select_policy
from slipstream.simulator.fleet import FleetPlan
from slipstream.simulator.profile import Profile
from slipstream.simulator.simulation import Outcome, Scenario, Simulation
from slipstream.simulator.step_model import LinearModel
from slipstream.simulator.trace import Trace, TraceRequest

# Round numbers: a step is 1 ms, a token of prefill 1 ms, a decoding request 1 ms, and KV costs nothing.
ROUND_TIMES = StepTimes(
    step_s=0.001, prefill_token_s=0.001, prefill_pair_s=0.0, decode_request_s=0.001, decode_kv_token_s=0.0
)


@dataclass(frozen=True, slots=True)
class ListedTrace:
    """Requests of a list."""

    requests: Sequence[TraceRequest]
    block_size: int = 10

    def __iter__(self) -> Iterator[TraceRequest]:
        return iter(self.requests)


def round_profile(
    *,
    times: StepTimes = ROUND_TIMES,
    kv_capacity_tokens: int = 100_000,
    chunk_tokens: int = 100,
    max_num_seqs: int = 64,
    transfer_bytes_per_s: float = 1e9,
) -> Profile:
    return Profile(
        name="round",
        source="made up",
        model=LinearModel(times),
        kv_capacity_tokens=kv_capacity_tokens,
        kv_bytes_per_token=1000.0,
        chunk_tokens=chunk_tokens,
        max_num_seqs=max_num_seqs,
        transfer_bytes_per_s=transfer_bytes_per_s,
    )


def scenario(
    *,
    num_prefill: int = 1,
    num_decode: int = 1,
    cache_blocks: int | None = None,
    block_size: int = 10,
    profile: Profile | None = None,
    **others: object,
) -> Scenario:
    plan = FleetPlan(
        num_prefill=num_prefill, num_decode=num_decode, cache_blocks=cache_blocks, block_size=block_size, report_s=0.0
    )
    return Scenario(fleet=plan, profile=profile or round_profile(), submit_s=0.0, **others)  # type: ignore[arg-type]


def simulate(trace: Trace, given: Scenario, policy: Policy | None = None) -> Outcome:
    return Simulation(trace, policy or select_policy("prefix_aware"), given).run()
