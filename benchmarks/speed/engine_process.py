"""An engine in a process of its own, as a contender."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.speed.contender import ContenderError
from benchmarks.speed.peer_environment import PeerEnvironment
from benchmarks.speed.process_log import ProcessLog
from benchmarks.speed.request import Answer, Request
from slipstream.cores import WORKER_ENVIRONMENT

ROOT = Path(__file__).parents[2]
QUIT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """`module` is NAME of `benchmarks.speed.engines`; without `environment` it runs in this one."""

    name: str
    module: str
    is_ours: bool = False
    has_prefix_cache: bool = True
    takes_arrivals: bool = True
    environment: PeerEnvironment | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


class EngineProcess:
    """Owned by one thread."""

    is_server = False

    def __init__(self, spec: EngineSpec, model: Path, num_threads: int, make_timeout_s: float) -> None:
        self.name = spec.name
        self.is_ours = spec.is_ours
        self.has_prefix_cache = spec.has_prefix_cache
        self.takes_arrivals = spec.takes_arrivals
        self.version = ""
        self._spec = spec
        self._model = model
        self._num_threads = num_threads
        self._make_timeout_s = make_timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._log: ProcessLog | None = None

    def start(self) -> None:
        python = sys.executable
        if self._spec.environment is not None:
            self._spec.environment.make(self._make_timeout_s)
            python = str(self._spec.environment.python)
        self._log = ProcessLog()
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.speed.engines", self._spec.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.fileno,
            text=True,
            env={
                **os.environ,
                **WORKER_ENVIRONMENT,
                "OMP_NUM_THREADS": str(self._num_threads),
                "PYTHONPATH": str(ROOT),
                **self._spec.variables,
            },
        )
        told = self._ask({"op": "load", "model": str(self._model), "num_threads": self._num_threads})
        self.version = told["version"]

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        sent = [(one.token_ids, one.max_tokens) for one in requests]
        told = self._ask({"op": "run", "requests": sent, "concurrency": concurrency})
        return [Answer(sent_s=sent_s, times_s=tuple(times_s)) for sent_s, times_s in told["answers"]]

    def close(self) -> None:
        if self._process is None:
            return
        try:
            self._process.communicate('{"op": "quit"}\n', timeout=QUIT_TIMEOUT_S)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        assert self._log is not None
        self._log.close()
        self._process = None

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Raises ContenderError when the engine refuses or has ended."""
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        try:
            print(json.dumps(message), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        assert self._log is not None
        told: dict[str, Any] = (
            json.loads(line) if line else {"error": f"it has ended; its last words:\n{self._log.tail()}"}
        )
        if "error" in told:
            raise ContenderError(f"{self.name}: {told['error']}")
        return told
