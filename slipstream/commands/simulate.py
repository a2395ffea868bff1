"""`slipstream simulate`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from common.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.simulator.experiment import Run, Traffic
    from slipstream.simulator.simulation import Scenario

MAX_WIDTH = 1000


class Number(click.FloatRange):
    """A finite one: click takes nan for within any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


COUNT = click.IntRange(min=1)
# Of workers: as many as a machine of this size can hold books about.
NUM_WORKERS = click.IntRange(min=1, max=100_000)
ABOVE_ZERO = Number(min=0, min_open=True)
SHARE = Number(min=0, max=1)


@click.command(short_help="Replay a trace of requests on a simulated fleet.")
@click.argument("trace")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="routing policy; repeatable, or 'all'")
@click.option("--prefill", type=NUM_WORKERS, default=8, show_default=True, help="prefill workers")
@click.option("--decode", type=NUM_WORKERS, help="decode workers [default: as many as prefill workers]")
@click.option(
    "--routers",
    type=click.IntRange(min=1, max=1000),
    default=1,
    show_default=True,
    help="routers, each with books of its own",
)
@click.option("--profile", metavar="NAME|FILE", help="what a worker is like [default: h100-llama-3.1-8b]")
@click.option("--cache", metavar="BLOCKS", help="'infinite', or blocks per prefill worker [default: by the profile]")
@click.option("--block-size", type=COUNT, help="tokens per block, for a CSV that doesn't say")
@click.option("--requests", type=COUNT, help="only the first so many")
@click.option("--time-scale", type=ABOVE_ZERO, help="multiplies the times of arrival [default: 1]")
@click.option("--utilization", type=ABOVE_ZERO, help="scales arrivals: offered prefill work as a share of capacity")
@click.option("--ttft-slo-ms", type=ABOVE_ZERO, help="a good answer's time to the first token at most")
@click.option("--tpot-slo-ms", type=ABOVE_ZERO, help="a good answer's time per further token at most")
@click.option("--index-delay-fraction", type=SHARE, default=0.0, show_default=True, help="share of late index writes")
@click.option("--index-delay", type=ABOVE_ZERO, default=2.0, show_default=True, help="seconds by which they are late")
@click.option("--guess-life", type=ABOVE_ZERO, help="seconds that routers share a guess [default: by queue and prompt]")
@click.option("--report-submits", is_flag=True, help="workers report their load at each submit, not only after steps")
@click.option("--map-at-once", is_flag=True, help="decode gives all blocks their places when a request is planned")
@click.option(
    "--kill-every", type=Number(min=0.01), metavar="SECONDS", help="another prefill worker dies every so often"
)
@click.option("--down-for", type=ABOVE_ZERO, default=10.0, show_default=True, help="seconds until it is back, empty")
@click.option("--seed", type=int, default=0, show_default=True, help="the same seed gives the same run")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object")
@click.option("--png", type=click.Path(path_type=Path), metavar="FILE", help="draw a chart (extra 'simulator')")
@click.option("--plan", is_flag=True, help="search the cheapest numbers of workers that meet the SLO")
@click.option("--attainment", type=SHARE, default=0.9, show_default=True, help="--plan: share of good answers")
@click.option("--prefill-cost", type=ABOVE_ZERO, default=1.0, show_default=True, help="--plan: of one worker")
@click.option("--decode-cost", type=ABOVE_ZERO, default=1.0, show_default=True, help="--plan: of one worker")
@click.option("--max-workers", type=NUM_WORKERS, default=256, show_default=True, help="--plan: of one role")
def simulate(trace: str, policies: tuple[str, ...], as_json: bool, png: Path | None, plan: bool, **options: Any) -> int:
    """Replay TRACE on modelled workers, through the router's own planning.

    TRACE is a file (Mooncake JSON lines, Azure CSV, or a CSV of arrival_s, input_tokens, output_tokens, block_ids), or
    a workload made up from parameters: synthetic:groups, system_prompts, multi_turn, agents. See docs/simulator.md.

    \b
    Examples:
      slipstream simulate conversation.jsonl --prefill 8 --cache infinite
      slipstream simulate conversation.jsonl --utilization 0.8 --policy all
      slipstream simulate "synthetic:multi_turn?requests=5000&rate=20&seed=1" --policy prefix_aware --json
      slipstream simulate conversation.jsonl --plan --ttft-slo-ms 2000 --tpot-slo-ms 50
    """
    from slipstream.simulator.experiment import TrafficOptions, compare, prepare
    from slipstream.simulator.policies import COMPARED_POLICY_NAMES

    if options["utilization"] is not None and options["time_scale"] is not None:
        raise click.UsageError("--utilization and --time-scale both scale arrivals: give one of them")
    if plan and png is not None:
        raise click.UsageError("--plan draws no chart: leave --png out")
    names = COMPARED_POLICY_NAMES if "all" in policies else tuple(dict.fromkeys(policies)) or ("prefix_aware",)
    traffic_options = TrafficOptions(
        source=trace,
        block_size=options["block_size"],
        max_requests=options["requests"],
        time_scale=options["time_scale"] or 1.0,
        utilization=options["utilization"],
    )
    scenario = _scenario(options, traffic_options)
    traffic = prepare(traffic_options, scenario)
    if plan:
        return _plan(traffic, scenario, names, as_json, options)
    runs = compare(traffic, scenario, names, begun=_progress)
    if png is not None:
        from slipstream.simulator.chart import draw_chart

        draw_chart(runs, png)
    _print(runs, traffic, scenario, as_json)
    return 0


def _scenario(options: dict[str, Any], traffic: Any) -> Scenario:
    from slipstream.simulator.experiment import open_trace
    from slipstream.simulator.fleet import FleetPlan
    from slipstream.simulator.measurements import Slo
    from slipstream.simulator.prefix_store import IndexDelays
    from slipstream.simulator.profile import DEFAULT_PROFILE, load_profile
    from slipstream.simulator.simulation import Deaths, Scenario

    profile = load_profile(options["profile"] or DEFAULT_PROFILE)
    block_size = open_trace(traffic.source, traffic.block_size).block_size
    kill_every_s = options["kill_every"]
    return Scenario(
        fleet=FleetPlan(
            num_prefill=options["prefill"],
            num_decode=options["decode"] or options["prefill"],
            cache_blocks=_cache_blocks(options["cache"], max(1, profile.kv_capacity_tokens // block_size)),
            block_size=block_size,
            report_submits=options["report_submits"],
        ),
        profile=profile,
        num_routers=options["routers"],
        delays=IndexDelays(
            late_fraction=options["index_delay_fraction"],
            late_s=options["index_delay"],
            guess_life_s=options["guess_life"],
        ),
        slo=Slo(ttft_s=_seconds(options["ttft_slo_ms"]), tpot_s=_seconds(options["tpot_slo_ms"])),
        deaths=None if kill_every_s is None else Deaths(every_s=kill_every_s, down_s=options["down_for"]),
        seed=options["seed"],
        maps_late=not options["map_at_once"],
    )


def _cache_blocks(text: str | None, default: int) -> int | None:
    if text is None:
        return default
    if text == "infinite":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError("cache", f"must be 'infinite' or a number of blocks, is {text!r}")
    return int(text)


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _progress(policy: str) -> None:
    click.secho(f"simulating {policy}", dim=True, err=True)


def _print(runs: list[Run], traffic: Traffic, scenario: Scenario, as_json: bool) -> None:
    if as_json:
        by_policy = {run.policy: dict(run.figures) for run in runs}
        click.echo(json.dumps({"policies": by_policy} if len(runs) > 1 else by_policy[runs[0].policy]))
        return
    from slipstream.simulator.tables import comparison_table, traffic_line

    click.echo(traffic_line(traffic.offered, scenario.fleet.num_prefill))
    click.echo(f"profile {scenario.profile.name}: {scenario.profile.source}")
    _print_table(comparison_table(runs))


def _plan(
    traffic: Traffic, scenario: Scenario, policies: tuple[str, ...], as_json: bool, options: dict[str, Any]
) -> int:
    import dataclasses

    from slipstream.simulator.capacity_plan import CapacityPlanner, PlanGoal
    from slipstream.simulator.policies import find_policy
    from slipstream.simulator.tables import plan_table

    if len(policies) > 1:
        raise click.UsageError("--plan takes one --policy")
    if scenario.slo.ttft_s is None and scenario.slo.tpot_s is None:
        raise click.UsageError("--plan needs --ttft-slo-ms, --tpot-slo-ms, or both")
    if options["utilization"] is not None:
        raise click.UsageError("--plan changes the number of workers: scale arrivals with --time-scale")
    goal = PlanGoal(
        attainment=options["attainment"],
        prefill_cost=options["prefill_cost"],
        decode_cost=options["decode_cost"],
        max_workers=options["max_workers"],
    )
    policy = find_policy(policies[0], traffic.trace.block_size)
    planner = CapacityPlanner(traffic, scenario, policy, goal, tried=_show_trial)
    best = planner.search()
    if as_json:
        trials = [dataclasses.asdict(trial) for trial in planner.trials.values()]
        click.echo(json.dumps({**dataclasses.asdict(best), "trials": trials}))
    else:
        _print_table(plan_table(list(planner.trials.values()), best))
    return 0


def _show_trial(trial: Any) -> None:
    outcome = "meets the SLO" if trial.meets else "does not"
    click.secho(f"{trial.num_prefill} prefill, {trial.num_decode} decode: {outcome}", dim=True, err=True)


def _print_table(table: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)
    console.print(table)
