"""A process of the fleet under one name, through all its lives."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from common.errors import UnavailableError
from slipstream.child import Child, ChildCommand

START_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.02
NICENESS = 5


class Process:
    """Started again with the same command. Owned by the main thread, with whose end its children end."""

    def __init__(self, name: str, arguments: Sequence[str], environment: dict[str, str], log_dir: Path) -> None:
        self.name = name
        self._arguments = tuple(arguments)
        self._environment = environment
        self._log_dir = log_dir
        self._life = 0
        self._child: Child | None = None
        self.frozen = False
        self.draining = False

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def alive(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    @property
    def answers(self) -> bool:
        return self.alive and not self.frozen

    @property
    def exit_code(self) -> int | None:
        assert self._child is not None
        return self._child.exit_code

    @property
    def log_path(self) -> Path:
        assert self._child is not None
        return self._child.log_path

    def start(self) -> None:
        assert not self.alive
        self._life += 1
        command = ChildCommand(
            name=f"{self.name}.{self._life}", arguments=self._arguments, environment=self._environment
        )
        self._child = Child(command, self._log_dir)
        self.draining = False
        # The one that watches must not wait for a core while what it watches goes on.
        os.setpriority(os.PRIO_PROCESS, self._child.pid, NICENESS)
        self.frozen = False

    async def wait_serving(self) -> None:
        """Raises UnavailableError with the end of its log when it ends, or is not there in time."""
        assert self._child is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while self._child.ready_line() is None:
            if self._child.exit_code is not None or time.monotonic() > deadline_s:
                raise UnavailableError(f"{self.name} {self._child.ending()}:\n{self._child.log_tail()}")
            await asyncio.sleep(POLL_INTERVAL_S)

    def drain(self) -> None:
        """Asks it to stop when its work is done or moved."""
        self.signal(signal.SIGTERM)
        self.draining = True

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)
        self.frozen = False

    def kill(self) -> None:
        assert self._child is not None
        self._child.kill()

    def signal(self, number: int) -> None:
        assert self._child is not None
        self._child.send(number)

    async def wait_end(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while self.alive and time.monotonic() < deadline_s:
            await asyncio.sleep(POLL_INTERVAL_S)
        return not self.alive

    @property
    def child(self) -> Child:
        assert self._child is not None
        return self._child


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
