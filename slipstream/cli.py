"""The entry point of the command `slipstream`.

Loads the commands only inside `run`: Ctrl-C while they load is no more than an exit code either.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

EXIT_INTERRUPTED = 130


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line: 0 done, 1 failed, 2 wrong use, 130 interrupted."""
    try:
        from slipstream.commands.group import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return EXIT_INTERRUPTED


def main() -> NoReturn:
    """The entry point."""
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # everything has stopped: one more Ctrl-C must not change the code
    sys.exit(code)
