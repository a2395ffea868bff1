"""`slipstream key`."""

from __future__ import annotations

import json

import click

from router.access.api_key import hash_key, mint_key


@click.command("key", short_help="Make an API key for a tenant.")
@click.option("--json", "as_json", is_flag=True, help="print one JSON object instead of text")
def key(as_json: bool) -> int:
    """Make an API key, and the hash of it that goes into the file of tenants (--api-keys of routers). Neither is kept:
    give the key to its tenant.

    \b
    Example of the file:
      [tenants.search]
      keys = ["sha256:…"]
      requests_per_s = 10
      tokens_per_s = 20000
    """
    minted = mint_key()
    if as_json:
        click.echo(json.dumps({"key": minted, "hash": hash_key(minted)}))
        return 0
    click.echo(f"key   {minted}")
    click.echo(f"hash  {hash_key(minted)}")
    return 0
