"""`slipstream status`."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING, Any

import click

from slipstream.commands.reaching import reaching_a_router
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.settings import ClientConfig, Sources

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.fleet_status import FleetStatus, RouterStatus, WorkerStatus

MAX_WIDTH = 1000
COLUMNS = (
    "worker",
    "role",
    "state",
    "model",
    "blocks",
    "cached",
    "running",
    "queue",
    "swapped",
    "hit rate",
    "backend",
    "address",
)


@settings_command("status", short_help="Print a table of the fleet.")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object instead of a table")
@click.option("--watch", type=click.FloatRange(min=0.1), metavar="SECONDS", help="print again every so many seconds")
def status(sources: Sources, as_json: bool, watch: float | None) -> int:
    """Print the fleet as a router sees it: each worker's role, state, KV blocks, batch, queue and prefix hit rate.

    A worker that is connected but gives no answers is not ready; one that left after a drain is removed, one that was
    lost without a word is dead: both are told for ten minutes. Workers that the router found but can't use are in it
    too, as refused, with the reason below the table.

    \b
    Examples:
      slipstream status
      slipstream status --target 10.0.0.1:50051 --watch 2
    """
    config = read_settings(ClientConfig, sources)
    from slipstream.commands.opening import open_client

    with reaching_a_router(), open_client(config) as client:
        while True:
            fleet = client.status()
            _print(fleet, as_json)
            if watch is None:
                return 0
            time.sleep(watch)


def _print(fleet: FleetStatus, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(fleet)))
        return
    from rich.console import Console

    table = fleet_table(fleet)
    # Cells that are cut short tell nothing: a terminal too narrow for the table wraps its lines instead.
    width = Console(width=MAX_WIDTH).measure(table).maximum
    console = Console(highlight=False)
    console.width = max(console.width, width)
    console.print(table)
    for refused in fleet.refused_workers:
        console.print(f"refused: {refused.reason}", soft_wrap=True, markup=False)
    if fleet.router is not None:
        console.print(router_line(fleet.router), soft_wrap=True)


def fleet_table(fleet: FleetStatus) -> Table:
    """One row per worker, those that the router refused last."""
    from rich import box
    from rich.table import Table

    table = Table(*COLUMNS, box=box.SIMPLE)
    for worker in fleet.workers:
        table.add_row(*_cells(worker))
    for refused in fleet.refused_workers:
        shown = {"worker": refused.worker_id, "state": "refused", "address": refused.address or "-"}
        table.add_row(*(shown.get(column, "-") for column in COLUMNS))
    return table


def router_line(router: RouterStatus) -> str:
    """What a router says of itself."""
    parts: list[Any] = [
        router.router_id,
        "ready" if router.ready else "not ready",
        f"{router.num_active_requests} active requests",
        f"up {router.uptime_s:.0f} s",
        f"version {router.version}",
    ]
    if router.index_degraded:
        parts.append("the prefix index does not answer, routing goes by load")
    return "router " + ", ".join(parts)


def _cells(worker: WorkerStatus) -> tuple[str, ...]:
    load = worker.load
    return (
        worker.worker_id,
        worker.role,
        _state(worker),
        worker.model,
        f"{load.num_used_blocks}/{load.num_blocks}",
        str(load.num_cached_blocks),
        f"{load.num_running}/{load.max_num_seqs}",
        str(load.num_waiting),
        str(load.num_swapped),
        "-" if load.hit_rate is None else f"{load.hit_rate:.0%}",
        worker.backend,
        worker.address,
    )


def _state(worker: WorkerStatus) -> str:
    """A worker that was found, but that the router could not reach yet, says of itself what does not count."""
    gone = worker.state in ("removed", "dead")
    return worker.state.replace("_", " ") if worker.reachable or gone else "unreachable"
