"""`slipstream certs`."""

from __future__ import annotations

from pathlib import Path

import click

DEFAULT_DAYS = 365


@click.command("certs", short_help="Make a CA and certificates for the processes of a fleet.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--host", "hosts", multiple=True, help="name or address that callers reach routers by, beside loopback; repeatable"
)
@click.option(
    "--days", type=click.IntRange(min=1), default=DEFAULT_DAYS, show_default=True, help="days that they are good for"
)
def certs(folder: Path, hosts: tuple[str, ...], days: int) -> int:
    """Make a CA and certificates in FOLDER, for --tls-dir of every process. A CA that is there already is kept, and
    its certificates are made anew: so they are renewed.

    Give each machine the folder of its role alone (router, worker, client, operator, index); whoever holds ca.key can
    make more of them.

    \b
    Examples:
      slipstream certs tls && slipstream up --tls-dir tls
      slipstream certs tls --host llm.example.com --host 10.0.0.1
    """
    from slipstream.certificates import CA_KEY_FILE, make_certificates

    is_new = make_certificates(folder, hosts, days)
    click.echo(f"{'made' if is_new else 'kept'} the CA of {folder}; certificates for {days} days:")
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        click.echo(f"  {path}")
    click.echo(f"keep {folder / CA_KEY_FILE} where no process runs")
    return 0
