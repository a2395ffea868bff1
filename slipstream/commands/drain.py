"""`slipstream drain`."""

from __future__ import annotations

import time

import click

from slipstream.commands.reaching import reaching_a_router
from slipstream.commands.settings_command import read_settings, settings_command
from slipstream.settings import ClientConfig, Sources

POLL_INTERVAL_S = 0.2


@settings_command("drain", short_help="Have a worker give its work away, so that it can be stopped.")
@click.argument("worker_id")
@click.option("--undo", is_flag=True, help="let the worker take work again")
@click.option("--no-wait", is_flag=True, help="return at once, not when the worker has nothing left")
def drain(sources: Sources, worker_id: str, undo: bool, no_wait: bool) -> int:
    """Have a worker give its work away, so that it can be stopped without anybody noticing.

    The worker takes no new requests. What waits is computed elsewhere; what decodes moves to other workers with its
    KV, or is finished where no other worker has room. The worker runs on, idle, until it is stopped or --undo. A
    worker that gets SIGTERM drains by itself.

    \b
    Examples:
      slipstream drain decode-0
      slipstream drain decode-0 --undo
    """
    config = read_settings(ClientConfig, sources)
    from slipstream.commands.opening import open_client

    with reaching_a_router(), open_client(config) as client:
        num_left = client.drain(worker_id, undo=undo)
        if undo:
            click.echo(f"{worker_id} takes work again")
            return 0
        ends_s = time.monotonic() + config.timeout_s
        while num_left and not no_wait and time.monotonic() < ends_s:
            time.sleep(POLL_INTERVAL_S)
            num_left = client.drain(worker_id)
    if num_left:
        click.echo(f"{worker_id} drains: {num_left} requests are left")
        return 0 if no_wait else 1
    click.echo(f"{worker_id} is drained: nothing is left on it. Stop it, or take it back with --undo")
    return 0
