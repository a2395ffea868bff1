"""One process that the launcher started: its logs, its READY line, its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream import tether

READY_PREFIX = "READY "
LOG_TAIL_LINES = 20
# Bytes from the end of a log that are looked at for its last lines.
LOG_TAIL_BYTES = 32 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCommand:
    """What to run. `cores` None: the launcher's."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    cores: tuple[int, ...] | None = None


class Child:
    """A running process, tied to the life of the thread that made it (see `slipstream.tether`).

    Owned by the launcher. Standard output and standard error go to files, so that nobody needs to read a pipe for
    the process to go on.
    """

    def __init__(self, command: ChildCommand, log_dir: Path) -> None:
        """Starts it. Raises OSError when the log files can't be written."""
        self.name = command.name
        self.command = command
        self.log_path = log_dir / f"{command.name}.log"
        self._output_path = log_dir / f"{command.name}.out"
        self.started_s = time.monotonic()
        cores = "-" if command.cores is None else ",".join(str(core) for core in command.cores)
        # -I and -S: the tether needs nothing that is installed, and starts in half the time.
        tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), cores, *command.arguments]
        with self._output_path.open("wb") as output, self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                tethered,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=dict(command.environment),
                # Ctrl-C in a terminal reaches the launcher alone, which stops the others in order.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when a signal ended it."""
        return self._process.poll()

    def ready_line(self) -> Mapping[str, Any] | None:
        """What the process said about itself when it began to serve; None until then."""
        for line in self._output_path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            if line.startswith(READY_PREFIX) and line.endswith("\n"):
                told: Mapping[str, Any] = json.loads(line.removeprefix(READY_PREFIX))
                return told
        return None

    def log_tail(self, num_lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of its log."""
        with self.log_path.open("rb") as log:
            log.seek(max(0, self.log_path.stat().st_size - LOG_TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-num_lines:])

    def ending(self) -> str:
        """How it ended, for people."""
        code = self.exit_code
        if code is None:
            return "still runs"
        return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"

    def send(self, signum: int) -> None:
        """Nothing when it has ended."""
        self._process.send_signal(signum)

    def wait_until(self, deadline_s: float) -> bool:
        """Whether it ended before the deadline, on the monotonic clock."""
        try:
            self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """Ends it at once. Idempotent."""
        self._process.kill()
        self._process.wait()


def stop_all(children: Sequence[Child], grace_s: float) -> None:
    """Asks all to stop at once, then ends those that are left after `grace_s` seconds."""
    try:
        for child in children:
            child.send(signal.SIGTERM)
        deadline_s = time.monotonic() + grace_s
        for child in children:
            child.wait_until(deadline_s)
    finally:  # also when a second Ctrl-C interrupts the wait
        for child in children:
            child.kill()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
