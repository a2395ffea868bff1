"""A peer's server as a contender: started once, called over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.contender import ContenderError
from benchmarks.speed.peer_environment import PeerEnvironment
from benchmarks.speed.process_log import ProcessLog
from benchmarks.speed.request import Answer, Request
from benchmarks.speed.served.sse import post_events
from benchmarks.speed.served.target import StreamTarget, ask_all
from slipstream import tether

HOST = "127.0.0.1"
START_TIMEOUT_S = 280.0
POLL_INTERVAL_S = 0.5
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSpec:
    """How a peer's server is started and asked.

    `command` and `variables` take the environment, the model and the port; `body` makes a request's JSON, and
    `count_tokens` returns the tokens that an event brings, from the event and the tokens so far.
    """

    name: str
    version: str
    environment: PeerEnvironment
    command: Callable[[PeerEnvironment, Path, int], Sequence[str]]
    variables: Callable[[PeerEnvironment], Mapping[str, str]] = field(default=lambda environment: {})
    path: str
    body: Callable[[Request], Mapping[str, Any]]
    count_tokens: Callable[[Mapping[str, Any], int], int]


@dataclass(frozen=True, slots=True)
class PeerTarget:
    spec: ServerSpec
    port: int

    async def stream(self, request: Request) -> AsyncGenerator[int, None]:
        num_so_far = 0
        async for event in post_events(HOST, self.port, self.spec.path, self.spec.body(request)):
            if num_tokens := self.spec.count_tokens(event, num_so_far):
                num_so_far += num_tokens
                yield num_tokens


class PeerServer:
    """Owned by one thread."""

    is_ours = False
    is_server = True
    has_prefix_cache = True
    takes_arrivals = True

    def __init__(self, spec: ServerSpec, model: Path, make_timeout_s: float, runner: asyncio.Runner) -> None:
        self.runner = runner
        self.name = spec.name
        self.version = spec.version
        self._spec = spec
        self._model = model
        self._make_timeout_s = make_timeout_s
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._log: ProcessLog | None = None

    def start(self) -> None:
        spec = self._spec
        spec.environment.make(self._make_timeout_s)
        self._port = _free_port()
        self._log = ProcessLog()
        command = spec.command(spec.environment, self._model, self._port)
        self._process = subprocess.Popen(
            # Tied to this process's life; it has processes of its own, which a session of its own keeps together.
            [sys.executable, "-I", tether.__file__, str(os.getpid()), "-", *command],
            stdout=self._log.fileno,
            stderr=subprocess.STDOUT,
            env={**os.environ, **spec.variables(spec.environment)},
            start_new_session=True,
        )
        self._wait_ready()

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        return self.runner.run(ask_all(self, requests, concurrency))

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[StreamTarget]:
        yield PeerTarget(self._spec, self._port)

    def close(self) -> None:
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(STOP_TIMEOUT_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self._process = None
        if self._log is not None:
            self._log.close()

    def _wait_ready(self) -> None:
        assert self._process is not None and self._log is not None
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._is_healthy():
            if self._process.poll() is not None:
                raise ContenderError(f"its server has ended; its last words:\n{self._log.tail()}")
            if time.monotonic() > deadline_s:
                told = self._log.tail()
                self.close()
                raise ContenderError(f"not ready after {START_TIMEOUT_S:g} s; its last words:\n{told}")
            time.sleep(POLL_INTERVAL_S)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._port}/health", timeout=POLL_INTERVAL_S) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
