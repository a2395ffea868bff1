"""A group of two for point-to-point messages, on a thread of its own: NCCL between GPUs, gloo between CPUs.

Every operation has a time limit, and every wait for one a slightly longer one, so that a peer that hangs, or a library
that does, costs a request its transport and this worker one idle thread, never its event loop.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from common.errors import UnavailableError
from common.transport.pair_store import PairStore

logger = logging.getLogger(__name__)

SOURCE_RANK, SINK_RANK = 0, 1
FORM_TIMEOUT_S = 10.0
OPERATION_TIMEOUT_S = 4.0
# How much longer than the operation itself its caller waits.
MARGIN_S = 2.0


class Pair:
    """Used by the event loop and by the threads that copy. One stream uses it at a time, in the order of its batches.

    `on_close` is called once, in any thread.
    """

    def __init__(
        self,
        rank: int,
        store: PairStore,
        device: torch.device,
        local_address: str,
        on_close: Callable[[], None],
        timeout_s: float = OPERATION_TIMEOUT_S,
    ) -> None:
        self.device = device
        self.closed = False
        self._rank = rank
        self._peer_rank = 1 - rank
        self._store = store
        self._local_address = local_address
        self._on_close = on_close
        self._timeout = timedelta(seconds=timeout_s)
        self._work: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._group: Any = None
        self._thread = threading.Thread(target=self._run, name=f"pair {rank}", daemon=True)
        self._thread.start()

    def form(self) -> Future[None]:
        """Both ends must call it. Fails with UnavailableError."""
        return self._submit(self._form)

    def send(self, tensor: torch.Tensor) -> Future[None]:
        """Queues a [n] uint8 tensor, which must stay as it is until the peer has it."""
        return self._submit(lambda: self._wait(self._group.send([tensor], self._peer_rank, 0)))

    def receive(self, tensor: torch.Tensor) -> None:
        """Fills a [n] uint8 tensor. Blocks the caller, for OPERATION_TIMEOUT_S and a margin at most."""
        future = self._submit(lambda: self._wait(self._group.recv([tensor], self._peer_rank, 0)))
        try:
            future.result(self._timeout.total_seconds() + MARGIN_S)
        except TimeoutError:
            self.close("an operation did not end by its own time limit")
            raise UnavailableError("island: the peer's bytes did not come in time") from None

    def close(self, reason: str) -> None:
        """Idempotent, in any thread; never waits. What is queued fails."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        logger.debug("pair closed: %s", reason)
        self._store.close()
        self._work.put(None)
        if self.device.type == "cuda" and self._group is not None:
            # Frees a thread that waits in NCCL; may itself wait, so not here.
            threading.Thread(target=self._group.abort, name="pair abort", daemon=True).start()
        self._on_close()

    def join(self) -> None:
        """After `close`: waits until the group is gone, as long as an operation may take. Blocks the caller.

        A group that is left to the interpreter's end may end the process by std::terminate.
        """
        self._thread.join(self._timeout.total_seconds() + MARGIN_S)

    def _submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            if self.closed:
                future.set_exception(UnavailableError("island: the group of two has been closed"))
            else:
                self._work.put((work, future))
        return future

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            work, future = item
            try:
                future.set_result(work())
            except Exception as error:
                self.close(str(error))
                future.set_exception(UnavailableError(f"island: {_first_line(error)}"))
        self._fail_queued()
        self._group = None

    def _fail_queued(self) -> None:
        while not self._work.empty():
            item = self._work.get()
            if item is not None:
                item[1].set_exception(UnavailableError("island: the group of two has been closed"))

    def _form(self) -> None:
        timeout = timedelta(seconds=FORM_TIMEOUT_S)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            nccl = dist.ProcessGroupNCCL.Options()
            nccl._timeout = timeout
            self._group = dist.ProcessGroupNCCL(self._store, self._rank, 2, nccl)
            return
        gloo = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        gloo._devices = [dist.ProcessGroupGloo.create_device(hostname=self._local_address)]
        gloo._timeout = timeout
        gloo._threads = 1
        self._group = dist.ProcessGroupGloo(self._store, self._rank, 2, gloo)

    def _wait(self, work: Any) -> None:
        work.wait(self._timeout)
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()


def local_address_towards(host: str) -> str:
    """The address of this machine that a peer at `host` sees. Raises UnavailableError when there is no route."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it asks the routing table
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UnavailableError(f"island: no way to {host}: {error.strerror}") from error


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
