"""`slipstream profile`."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from common.config import EngineConfig, Role
from common.errors import ConfigError
from slipstream.cluster_config import ClusterConfig
from slipstream.commands.interrupt import sigterm_as_interrupt
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.settings import Sources

if TYPE_CHECKING:
    from slipstream.profiling import MeasuredWorker

DEFAULT_TRANSFER_BYTES_PER_S = 1e9


@settings_command("profile", short_help="Measure a worker on this machine, for the simulator.")
@click.argument("output", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--rounds", type=click.IntRange(min=1), default=2, show_default=True, help="times to measure everything")
@click.option(
    "--transfer-bytes-per-s",
    type=click.FloatRange(min=1),
    default=DEFAULT_TRANSFER_BYTES_PER_S,
    show_default=True,
    help="bandwidth between workers to write into the profile; it is not measured",
)
def profile(sources: Sources, output: Path, rounds: int, transfer_bytes_per_s: float) -> int:
    """Measure a worker on this machine and write its profile to the file OUTPUT, for `slipstream simulate --profile`.

    Starts one engine, computes prompts of 16 to 2,048 tokens and decodes in batches of 1 to 16, and takes the step
    times that the worker has fitted to its own steps: those that routers plan with.

    \b
    Examples:
      slipstream profile laptop.json
      slipstream profile llama.json --model /models/llama-3.2-1b --max-num-batched-tokens 4096
    """
    engine = read_settings(EngineConfig, sources)
    _check_writable(output)
    from slipstream.client import Client
    from slipstream.commands.progress import StartProgress
    from slipstream.launcher import Cluster
    from slipstream.profiling import WorkerProfiler

    progress = StartProgress()
    cluster = Cluster(ClusterConfig(role=Role.BOTH, engine=engine, grpc_port=0, http_port=0), on_event=progress.show)
    with sigterm_as_interrupt(), closing(cluster):
        with progress:
            cluster.start()
        with Client(cluster.grpc_addresses) as client:
            profiler = WorkerProfiler(client, cluster.workers[0].address, lambda line: click.echo(line, err=True))
            with closing(profiler):
                measured = profiler.measure(rounds)
            model = client.models()[0].id
    output.write_text(json.dumps(_document(measured, model, transfer_bytes_per_s), indent=2) + "\n")
    click.echo(f"{output}: {measured.backend}, {model}; prefill foretold within {measured.prefill_error:.0%} (median)")
    return 0


def _check_writable(path: Path) -> None:
    """Before minutes of measuring. Raises ConfigError."""
    if not path.parent.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError("output", f"{path} can't be written")


def _document(measured: MeasuredWorker, model: str, transfer_bytes_per_s: float) -> dict[str, object]:
    """See docs/simulator.md."""
    times = dataclasses.asdict(measured.step_times)
    num_steps = times.pop("num_steps")
    date = time.strftime("%Y-%m-%d")
    return {
        "name": model,
        "source": f"Measured by slipstream profile on {date}: {model}, {measured.backend}, {num_steps} steps; "
        f"prefill foretold within {measured.prefill_error:.0%} (median). The bandwidth of transfers is not measured.",
        "kind": "linear",
        "linear": times,
        "kv_capacity_tokens": measured.kv_capacity_tokens,
        "kv_bytes_per_token": measured.kv_bytes_per_token,
        "chunk_tokens": measured.chunk_tokens,
        "max_num_seqs": measured.max_num_seqs,
        "transfer_bytes_per_s": transfer_bytes_per_s,
    }
