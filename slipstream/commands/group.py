"""The command `slipstream`: which commands there are, and what an error looks like."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from common.errors import ConfigError, InvalidRequestError, SlipstreamError
from slipstream.commands.certs import certs
from slipstream.commands.drain import drain
from slipstream.commands.explain import explain
from slipstream.commands.generate import generate
from slipstream.commands.key import key
from slipstream.commands.profile import profile
from slipstream.commands.router import router
from slipstream.commands.simulate import simulate
from slipstream.commands.status import status
from slipstream.commands.up import up
from slipstream.commands.version import version
from slipstream.commands.worker import decode, prefill

EXIT_FAILED = 1
EXIT_WRONG_USE = 2


def _show_version(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        context.invoke(version)
        context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="As `slipstream version`.",
)
def slipstream() -> None:
    """Slipstream serves large language models with prefill and decode on separate workers.

    \b
    To begin:
      slipstream up                              everything on this machine, with a small real model
      slipstream generate "Tell me a story."     an answer from it, in another terminal
      slipstream status                          what it is doing

    On several machines each process has its own command: router, prefill, decode.
    """


for command in (up, generate, status, explain, drain, profile, simulate, router, prefill, decode, certs, key, version):
    slipstream.add_command(command)


def run_command(arguments: Sequence[str]) -> int:
    """The exit code of a command line: 0 done, 1 failed, 2 wrong use. Raises KeyboardInterrupt when interrupted."""
    try:
        result = slipstream.main(args=list(arguments), prog_name="slipstream", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:  # what click makes of it
        raise KeyboardInterrupt from None
    except (ConfigError, InvalidRequestError) as error:
        click.echo(f"error: {error}", err=True)
        return EXIT_WRONG_USE
    except SlipstreamError as error:
        click.echo(f"error: {error}", err=True)
        return EXIT_FAILED
    except BrokenPipeError:
        # The reader of our output is gone; without this Python complains once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return result if isinstance(result, int) else 0
