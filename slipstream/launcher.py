"""Starts a whole cluster on this machine and stops every process of it: the work behind `slipstream up`.

Owns processes, logs, cores and ports. Knows of the services only their commands and what they say when ready:
`READY {"worker_id", "role", "address"}` from a worker, `READY {"router_id", "grpc_address", "http_url"}` from a
router. Never imports torch.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from common.checkpoint import resolve_model
from common.config import Role
from common.errors import ConfigError, UnavailableError
from common.index.server import EmbeddedIndexServer
from common.net.peer_role import PeerRole
from common.net.tls import TlsIdentity
from slipstream.access_check import check_identity
from slipstream.child import Child, stop_all
from slipstream.cluster_config import ClusterConfig
from slipstream.cluster_plan import ClusterPlan
from slipstream.preflight import check_model, check_surroundings
from slipstream.readiness import router_readiness

POLL_INTERVAL_S = 0.02
READINESS_INTERVAL_S = 0.1
# Routers are stopped first, so that workers have nothing left to drain; a router has its own time beside it.
STOP_GRACE_S = 15.0
# Longer than a worker drains.
RESTART_GRACE_S = 40.0
CONFIG_ERROR_EXIT_CODE = 2
SLIPSTREAM_PROGRAM = (sys.executable, "-m", "slipstream")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """Something that happened while the cluster started. `elapsed_s` counts from the process's start."""

    name: str
    text: str
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterWorker:
    id: str
    pid: int
    address: str  # host:port
    role: Role


class Cluster:
    """Index server, workers and routers as processes of this machine, each tied to the life of this one.

    A context manager: started and ready inside, every process stopped after it, however it is left. Owned by one
    thread. `program` is what runs a service's command line.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        program: Sequence[str] = SLIPSTREAM_PROGRAM,
        on_event: Callable[[ClusterEvent], None] = lambda event: None,
    ) -> None:
        self.config = config
        self._program = tuple(program)
        self._on_event = on_event
        self._children: dict[str, Child] = {}
        self._told: dict[str, Mapping[str, Any]] = {}
        self._reported: set[str] = set()
        self._index: EmbeddedIndexServer | None = None
        self._tls: TlsIdentity | None = None
        # The kernel ends a tethered child with the *thread* that started it: this one lives as long as the cluster,
        # whatever thread calls start().
        self._spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cluster-spawner")
        self._log_dir: Path | None = None
        self._keep_logs = config.log_dir is not None
        self.index_url = config.index.index_url

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Returns when every router answers ready. Nothing runs on when it raises.

        Raises UnavailableError with the last lines of its log when a process ends or none is ready in time, and
        ConfigError when a setting is refused: what can be judged here is, before any process starts.
        """
        deadline_s = time.monotonic() + self.config.start_timeout_s
        try:
            check_surroundings(self.config)
            self._tls = check_identity(self.config.process, PeerRole.ROUTER)
            self._log_dir = self._make_log_dir()
            self._prepare_models()
            if self.index_url is None:
                started_s = time.monotonic()
                self._index = EmbeddedIndexServer()
                self._index.start()
                self.index_url = self._index.url
                self._emit("index", self.index_url, started_s)
            plan = ClusterPlan(self.config, self.index_url, sorted(os.sched_getaffinity(0)))
            for command in plan.commands(self._program, os.environ):
                self._children[command.name] = self._spawner.submit(Child, command, self._log_dir).result()
            self._wait_serving(deadline_s)
            self._wait_ready(deadline_s)
        except BaseException:
            self._keep_logs = True
            self.close()
            raise

    def close(self) -> None:
        """Stops every process and waits for its end. Idempotent."""
        if any(child.exit_code not in (None, 0, -signal.SIGTERM) for child in self._children.values()):
            self._keep_logs = True
        try:
            # Routers first, so that no request is sent to a worker that is gone.
            for routers in (True, False):
                stop_all(
                    [child for name, child in self._children.items() if (name in self.router_names) is routers],
                    STOP_GRACE_S + (self.config.router_drain_timeout_s if routers else 0.0),
                )
        finally:
            if self._index is not None:
                self._index.stop()
            self._spawner.shutdown(wait=False)
            if self._log_dir is not None and not self._keep_logs:
                shutil.rmtree(self._log_dir, ignore_errors=True)

    @property
    def log_dir(self) -> Path:
        assert self._log_dir is not None, "the cluster has not been started"
        return self._log_dir

    @property
    def router_names(self) -> list[str]:
        return [f"router-{index}" for index in range(self.config.routers)]

    @property
    def grpc_addresses(self) -> list[str]:
        """host:port of each router's gRPC API."""
        return [str(self._told[name]["grpc_address"]) for name in self.router_names]

    @property
    def http_urls(self) -> list[str]:
        """http://host:port of each router's HTTP API, https with TLS."""
        return [str(self._told[name]["http_url"]) for name in self.router_names]

    @property
    def workers(self) -> list[ClusterWorker]:
        """The workers that were started, running or not."""
        return [
            ClusterWorker(
                id=str(told["worker_id"]),
                pid=self._children[name].pid,
                address=str(told["address"]),
                role=Role(told["role"]),
            )
            for name in self._children
            if "worker_id" in (told := self._told.get(name, {}))
        ]

    def child(self, name: str) -> Child:
        """A process by its name: `router-0`, `prefill-0`, `decode-0`, …; workers' names are their ids."""
        return self._children[name]

    def kill(self, worker_id: str, signum: int = signal.SIGKILL) -> None:
        """Sends a signal to one process, and waits for its end when that is SIGKILL."""
        self._children[worker_id].send(signum)
        if signum == signal.SIGKILL:
            self._children[worker_id].kill()

    def restart(self, name: str) -> None:
        """Stops a process as its operator would, and starts it anew under its name. Returns when every router is ready.

        Raises UnavailableError when it does not stop or start in time.
        """
        child = self._children[name]
        child.send(signal.SIGTERM)
        if not child.wait_until(time.monotonic() + RESTART_GRACE_S):
            raise UnavailableError(f"{name} does not stop within {RESTART_GRACE_S:g} s")
        del self._told[name]
        self._children[name] = self._spawner.submit(Child, child.command, self.log_dir).result()
        deadline_s = time.monotonic() + self.config.start_timeout_s
        self._wait_serving(deadline_s)
        self._wait_ready(deadline_s)

    def newly_ended(self) -> list[Child]:
        """The processes that have ended since the last call."""
        ended = [child for child in self._children.values() if child.exit_code is not None]
        new = [child for child in ended if child.name not in self._reported]
        self._reported.update(child.name for child in new)
        return new

    def missing_kind(self) -> str | None:
        """The kind of process of which none is left: without it nothing is served."""
        kinds = {name.rpartition("-")[0] for name in self._children}
        alive = {name.rpartition("-")[0] for name, child in self._children.items() if child.exit_code is None}
        return min(kinds - alive, default=None)

    def index_lost(self) -> bool:
        """Whether the index server that the cluster started has ended: routing then goes by load alone."""
        return self._index is not None and not self._index.is_alive()

    def _prepare_models(self) -> None:
        """Downloads and converts what is no folder yet, once, before several processes would do it side by side."""
        engines = (self.config.engine, self.config.prefill_engine, self.config.decode_engine)
        for model in sorted({engine.model for engine in engines if engine is not None}):
            started_s = time.monotonic()
            if not Path(model).is_dir():
                self._emit("model", f"preparing {model}", started_s)
            folder = resolve_model(model)
            check_model(folder)
            self._emit("model", str(folder), started_s)

    def _make_log_dir(self) -> Path:
        if self.config.log_dir is None:
            return Path(tempfile.mkdtemp(prefix="slipstream-"))
        path = Path(self.config.log_dir)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError("log_dir", f"{path} can't be made: {error.strerror}") from None
        return path

    def _wait_serving(self, deadline_s: float) -> None:
        while len(self._told) < len(self._children):
            for name, child in self._children.items():
                if name not in self._told and (told := child.ready_line()) is not None:
                    self._told[name] = told
                    self._emit(name, str(told.get("address", told.get("grpc_address", ""))), child.started_s)
            self._check_alive()
            if time.monotonic() > deadline_s:
                late = [child for name, child in self._children.items() if name not in self._told]
                raise self._too_late(late[0], "does not serve")
            time.sleep(POLL_INTERVAL_S)

    def _wait_ready(self, deadline_s: float) -> None:
        for name, url in zip(self.router_names, self.http_urls, strict=True):
            while (reason := router_readiness(url, self._tls)) is not None:
                self._check_alive()
                if time.monotonic() > deadline_s:
                    raise self._too_late(self._children[name], f"is not ready ({reason})")
                time.sleep(READINESS_INTERVAL_S)
            self._emit(name, "ready", self._children[name].started_s)

    def _check_alive(self) -> None:
        for child in self._children.values():
            if child.exit_code is None:
                continue
            message = f"{child.name} {child.ending()}; the end of its log {child.log_path}:\n{child.log_tail()}"
            if child.exit_code == CONFIG_ERROR_EXIT_CODE:
                raise ConfigError(child.name, message.removeprefix(f"{child.name} "))
            raise UnavailableError(message)

    def _too_late(self, child: Child, what: str) -> UnavailableError:
        return UnavailableError(
            f"{child.name} {what} after {self.config.start_timeout_s:g} s (start_timeout_s); "
            f"the end of its log {child.log_path}:\n{child.log_tail()}"
        )

    def _emit(self, name: str, text: str, started_s: float) -> None:
        self._on_event(ClusterEvent(name=name, text=text, elapsed_s=time.monotonic() - started_s))
