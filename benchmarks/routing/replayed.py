"""Policies replayed on a trace by the simulator: one function per claim, each prints its table and says what is met."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipstream.simulator.experiment import TrafficOptions, compare, prepare
from slipstream.simulator.fleet import FleetPlan
from slipstream.simulator.policies import COMPARED_POLICY_NAMES
from slipstream.simulator.prefix_store import IndexDelays
from slipstream.simulator.profile import DEFAULT_PROFILE, load_profile
from slipstream.simulator.report import Figures
from slipstream.simulator.simulation import Deaths, Scenario

OURS = "prefix_aware"
NUM_PREFILL = 8
# Enough that decode is in nobody's way: prefill is what these figures are about.
NUM_DECODE = 32
BLOCK_SIZE = 512
CACHE_BLOCKS = 6000
UTILIZATIONS = (0.6, 0.8, 0.95)
NUM_ROUTERS = 4
LATE_WRITES = IndexDelays(late_fraction=0.05, late_s=2.0)
DEATHS = Deaths(every_s=300.0)
# Hits and balance differ a little from seed to seed, and none may miss.
HIT_SEEDS = range(5)

LEAST_HIT_RATE = 0.363
LEAST_HIT_RATE_WITH_EVICTION = 0.350
MAX_IMBALANCE = 1.02
TAIL_TOLERANCE = 1.03
MAX_LOST_HIT_RATE = 0.02
MAX_LOST_BALANCE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What was wanted, and whether it is so."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What is replayed: the figures are medians of one run per seed."""

    trace: str
    seeds: Sequence[int] = (0,)
    policies: Sequence[str] = COMPARED_POLICY_NAMES


def scenario(cache_blocks: int | None = None, num_decode: int = NUM_DECODE) -> Scenario:
    return Scenario(
        fleet=FleetPlan(
            num_prefill=NUM_PREFILL, num_decode=num_decode, cache_blocks=cache_blocks, block_size=BLOCK_SIZE
        ),
        profile=load_profile(DEFAULT_PROFILE),
    )


def run(
    traffic: Traffic, given: Scenario, policies: Sequence[str], utilization: float | None = None
) -> Mapping[str, Figures]:
    """Figures by policy: medians over the seeds."""
    return {policy: _medians(found) for policy, found in run_all(traffic, given, policies, utilization).items()}


def run_all(
    traffic: Traffic, given: Scenario, policies: Sequence[str], utilization: float | None = None
) -> Mapping[str, Sequence[Figures]]:
    """Figures by policy, of each seed."""
    prepared = prepare(TrafficOptions(source=traffic.trace, utilization=utilization), given)
    runs: dict[str, list[Figures]] = {policy: [] for policy in policies}
    for seed in traffic.seeds:
        for one in compare(prepared, dataclasses.replace(given, seed=seed), policies):
            runs[one.policy].append(one.figures)
    return runs


def _medians(runs: Sequence[Figures]) -> Figures:
    return {name: statistics.median(one[name] for one in runs) for name in runs[0]}


def judge_hits(traffic: Traffic) -> Iterator[Claim]:
    """At the trace's own times: hits and balance together, in the worst of several runs."""
    several = dataclasses.replace(traffic, seeds=sorted({*HIT_SEEDS, *traffic.seeds}))
    for name, given, least in (
        ("infinite cache", scenario(), LEAST_HIT_RATE),
        # As `slipstream simulate TRACE --prefill 8 --cache infinite`.
        (f"infinite cache, {NUM_PREFILL} decode workers", scenario(num_decode=NUM_PREFILL), LEAST_HIT_RATE),
        (f"{CACHE_BLOCKS:,} blocks per worker", scenario(CACHE_BLOCKS), LEAST_HIT_RATE_WITH_EVICTION),
    ):
        runs = run_all(several, given, [OURS])[OURS]
        print_figures(
            f"real times, {name}", {f"seed {seed}": one for seed, one in zip(several.seeds, runs, strict=True)}
        )
        hit_rate, ceiling = min(one["hit_rate"] for one in runs), runs[0]["hit_rate_ceiling"]
        yield Claim(
            text=f"{name}: hit rate {hit_rate:.4f} of {ceiling:.4f} in the worst run (at least {least})",
            met=hit_rate >= least,
        )
        if given.fleet.cache_blocks is None:
            imbalance = max(one["busiest_over_mean"] for one in runs)
            yield Claim(
                text=f"{name}: busiest over mean {imbalance:.4f} in the worst run (at most {MAX_IMBALANCE})",
                met=imbalance <= MAX_IMBALANCE,
            )


def judge_latency(traffic: Traffic) -> Iterator[Claim]:
    """At three loads, against every other policy."""
    for utilization in UTILIZATIONS:
        found = run(traffic, scenario(), traffic.policies, utilization)
        print_figures(f"{utilization:.0%} of capacity", found)
        others = [figures for policy, figures in found.items() if policy != OURS]
        ours = found[OURS]
        best = min(figures["ttft_mean_s"] for figures in others)
        yield Claim(
            text=f"{utilization:.0%}: mean TTFT {ours['ttft_mean_s']:.3f} s, the others' best {best:.3f} s",
            met=ours["ttft_mean_s"] < best,
        )
        for name in ("ttft_p95_s", "ttft_p99_s"):
            best = min(figures[name] for figures in found.values())
            yield Claim(
                text=f"{utilization:.0%}: {name} {ours[name]:.3f} s, the best {best:.3f} s (at most 3 % above)",
                met=ours[name] <= TAIL_TOLERANCE * best,
            )


def judge_faults(traffic: Traffic) -> Iterator[Claim]:
    """Several routers, late index writes, and workers that die and return, each against the undisturbed run."""
    base = scenario()
    for utilization in (None, 0.8, 0.95):
        several = dataclasses.replace(base, num_routers=NUM_ROUTERS)
        variants = {
            "1 router": base,
            f"{NUM_ROUTERS} routers": several,
            f"{NUM_ROUTERS} routers, 5 % of index writes 2 s late": dataclasses.replace(several, delays=LATE_WRITES),
            f"{NUM_ROUTERS} routers, a worker dies every 5 minutes": dataclasses.replace(several, deaths=DEATHS),
        }
        found = {name: run(traffic, given, [OURS], utilization)[OURS] for name, given in variants.items()}
        where = "real times" if utilization is None else f"{utilization:.0%} of capacity"
        print_figures(f"faults, {where}", found)
        yield from _judge_routers(where, found["1 router"], found[f"{NUM_ROUTERS} routers"])
        for name, figures in found.items():
            lost = figures["num_requests"] - figures["num_answered"]
            yield Claim(text=f"{where}, {name}: {lost:g} requests lost", met=lost == 0)


def _judge_routers(where: str, one: Figures, several: Figures) -> Iterator[Claim]:
    lost = one["hit_rate"] - several["hit_rate"]
    yield Claim(
        text=f"{where}: {NUM_ROUTERS} routers lose {100 * lost:.2f} points of hit rate (at most 2)",
        met=lost <= MAX_LOST_HIT_RATE,
    )
    lost = several["busiest_over_mean"] / one["busiest_over_mean"] - 1
    yield Claim(
        text=f"{where}: {NUM_ROUTERS} routers lose {lost:.1%} of balance (at most 5 %)", met=lost <= MAX_LOST_BALANCE
    )


def print_figures(title: str, found: Mapping[str, Figures]) -> None:
    width = max(len(name) for name in found)
    print(f"\n{title}")
    print(f"  {'':<{width}}  hit rate  busiest/mean  TTFT mean     p50     p95     p99")
    for name, one in found.items():
        times = "  ".join(f"{one[f'ttft_{part}_s']:6.3f}" for part in ("p50", "p95", "p99"))
        shares = f"{one['hit_rate']:8.4f}  {one['busiest_over_mean']:12.4f}"
        print(f"  {name:<{width}}  {shares}  {one['ttft_mean_s']:9.3f}  {times}")
