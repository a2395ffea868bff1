"""What the command asks for: a trace, replayed under several policies on the same fleet."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import ConfigError
from slipstream.simulator.offered_load import OfferedLoad, offered_load
from slipstream.simulator.policies import find_policy
from slipstream.simulator.report import Figures, figures
from slipstream.simulator.simulation import Outcome, Scenario, Simulation
from slipstream.simulator.synthetic import PREFIX, SyntheticTrace, parse_workload
from slipstream.simulator.trace import Trace, TraceView
from slipstream.simulator.trace_file import open_trace_file


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """How a trace is replayed. `utilization` takes the place of `time_scale`."""

    source: str
    block_size: int | None = None
    max_requests: int | None = None
    time_scale: float = 1.0
    utilization: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """A trace as it arrives, and what it asks for."""

    trace: Trace
    offered: OfferedLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy's run."""

    policy: str
    figures: Figures
    outcome: Outcome


def open_trace(source: str, block_size: int | None) -> Trace:
    """A file, or a synthetic workload. Raises ConfigError."""
    if source.startswith(PREFIX):
        return SyntheticTrace(parse_workload(source.removeprefix(PREFIX)))
    return open_trace_file(Path(source), block_size)


def prepare(options: TrafficOptions, scenario: Scenario) -> Traffic:
    """Reads the trace once, to know what it asks for. Raises ConfigError."""
    trace = open_trace(options.source, options.block_size)
    view = TraceView(trace=trace, time_scale=options.time_scale, max_requests=options.max_requests)
    offered = offered_load(view, scenario.profile)
    if not offered.num_requests:
        raise ConfigError("trace", f"{options.source} has no requests")
    if options.utilization is not None:
        if not offered.duration_s:
            raise ConfigError("utilization", "all requests of the trace arrive at once: there is nothing to scale")
        scale = offered.utilization(scenario.fleet.num_prefill) / options.utilization
        view = dataclasses.replace(view, time_scale=view.time_scale * scale)
        offered = dataclasses.replace(offered, duration_s=offered.duration_s * scale)
    return Traffic(trace=view, offered=offered)


def compare(
    traffic: Traffic, scenario: Scenario, policies: Sequence[str], begun: Callable[[str], None] = lambda _: None
) -> list[Run]:
    """One run per policy. Raises ConfigError."""
    found = [(name, find_policy(name, traffic.trace.block_size)) for name in policies]
    runs: list[Run] = []
    for name, policy in found:
        begun(name)
        outcome = Simulation(traffic.trace, policy, scenario).run()
        runs.append(Run(policy=name, figures=figures(outcome, traffic.offered), outcome=outcome))
    return runs
