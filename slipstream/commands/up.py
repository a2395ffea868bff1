"""`slipstream up`."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import click

from common.address import callable_address, is_loopback, without_password
from slipstream.cluster_config import ClusterConfig
from slipstream.commands.interrupt import sigterm_as_interrupt
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.settings import Sources

if TYPE_CHECKING:
    from slipstream.launcher import Cluster

WATCH_INTERVAL_S = 0.2
# One that the demo model answers rightly when it takes the likeliest tokens.
FIRST_PROMPT = "What is the capital of France?"
FIRST_PROMPT_MAX_TOKENS = 64
API_KEY_VARIABLE = "SLIPSTREAM_API_KEY"


@settings_command("up", short_help="Start a whole fleet on this machine and serve until Ctrl-C.")
@click.option(
    "--prompt",
    default=FIRST_PROMPT,
    show_default=True,
    help="asked first, at temperature 0, when all is ready",
)
@click.option("--no-prompt", is_flag=True, help="ask no first prompt")
@click.option("--api-key", envvar=API_KEY_VARIABLE, show_envvar=True, help="key that asks it, where keys are needed")
def up(sources: Sources, prompt: str, no_prompt: bool, api_key: str | None) -> int:
    """Start a whole fleet on this machine: index server, prefill and decode workers, routers. Serve until Ctrl-C.

    Without --model it serves a small real one, SmolLM2-135M-Instruct, which is downloaded on the first start. When a
    process ends by itself, the end of its log is shown and the others go on serving; when the last router, prefill
    worker or decode worker is gone, everything stops with exit code 1.

    \b
    Examples:
      slipstream up
      slipstream up --prefill 2 --decode 2 --model /models/llama
      slipstream up --role both --no-prompt        (one worker that prefills and decodes, to compare with)
    """
    config = read_settings(ClusterConfig, sources)
    from slipstream.commands.progress import StartProgress
    from slipstream.launcher import Cluster

    started_s = time.monotonic()
    with (
        sigterm_as_interrupt(),
        StartProgress() as progress,
        closing(Cluster(config, on_event=progress.show)) as cluster,
    ):
        cluster.start()
        progress.done()
        try:
            _announce(cluster, time.monotonic() - started_s)
            if not no_prompt:
                _first_answer(cluster, prompt, api_key)
            return serve_until_nothing_is_left(cluster)
        except KeyboardInterrupt:
            click.echo("\nstopping")
            return 0


def _announce(cluster: Cluster, elapsed_s: float) -> None:
    click.secho(f"\nReady after {elapsed_s:.1f} s", bold=True)
    for grpc_address, http_url in zip(cluster.grpc_addresses, cluster.http_urls, strict=True):
        click.echo(f"  gRPC         {grpc_address}")
        click.echo(f"  OpenAI HTTP  {http_url}/v1")
    click.echo(f"  index        {without_password(cluster.index_url or '')}")
    click.echo(f"  logs         {cluster.log_dir}")
    config = cluster.config
    if not is_loopback(config.host) and config.process.tls_dir is None and config.api_keys is None:
        click.echo(
            "  Whoever reaches this machine may use it: --tls-dir and --api-keys say who (docs/security.md)", err=True
        )
    click.echo("Ctrl-C stops everything.\n")


def _first_answer(cluster: Cluster, prompt: str, api_key: str | None) -> None:
    from common.errors import SlipstreamError
    from slipstream.commands.answer import stream_answer, summary
    from slipstream.commands.opening import open_client
    from slipstream.generation import GenerateOptions
    from slipstream.settings import ClientConfig

    if cluster.config.api_keys is not None and not api_key:
        click.echo(f"no first prompt: it needs a key (--api-key, {API_KEY_VARIABLE})\n")
        return
    click.secho(f"> {prompt}", bold=True)
    targets = tuple(callable_address(address) for address in cluster.grpc_addresses)
    try:
        with open_client(
            ClientConfig(target=targets, tls_dir=cluster.config.process.tls_dir, api_key=api_key)
        ) as client:
            options = GenerateOptions(max_tokens=FIRST_PROMPT_MAX_TOKENS, temperature=0.0)
            answer = stream_answer(client, prompt, None, options, echo=True)
    except SlipstreamError as error:
        click.echo(f"the first prompt failed: {error}", err=True)
        return
    click.secho(summary(answer) + "\n", dim=True)


def serve_until_nothing_is_left(cluster: Cluster) -> int:
    """Tells of each process that ends; returns the exit code when the last of a kind has ended."""
    from slipstream.commands.progress import describe_end

    index_lost = False
    while True:
        for child in cluster.newly_ended():
            click.echo(describe_end(child), err=True)
        if cluster.index_lost() and not index_lost:
            index_lost = True
            click.echo("the prefix index ended; routing goes on by load alone", err=True)
        if (kind := cluster.missing_kind()) is not None:
            click.echo(f"error: no {kind} process is left, so nothing can be served; stopping", err=True)
            return 1
        time.sleep(WATCH_INTERVAL_S)
