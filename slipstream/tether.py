"""Runs a command whose life is tied to its parent's: `python tether.py PARENT_PID CORES COMMAND…`.

Replaces itself by the command. Asking the kernel from here, and not between fork and exec in the launcher, keeps
Python code out of a forked copy of a process that has threads. Stands alone: it is run as a file, isolated.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Does not return. CORES is a comma-separated list of core numbers, or `-` for all."""
    parent, cores, *command = arguments
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != int(parent):
        sys.exit("the parent is gone already")
    if cores != "-":
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
