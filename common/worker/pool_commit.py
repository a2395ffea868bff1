"""Has the system give the KV pool's memory before requests need it.

A first write to a page costs the time of clearing it, and in a virtual machine far more: the event loop wrote arriving
blocks at 350 MB/s, and a hand-over took 70 ms instead of 8.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import torch

from common.engine.kv_cache import KVCache
from common.kernels.cpu.huge_pages import HUGE_PAGE_BYTES, commit
from common.kv.block_pool import BlockPool

# Beyond what was ever used. Half a second at most, where the system is slow to give it.
AHEAD_BYTES = 2**29
LOOK_INTERVAL_S = 0.05
# Others of the process can't map memory during a piece, and lose its time where the thread shares their core.
PAUSE_PER_CPU_S = 4.0
MIN_PAUSE_S = 0.001
# A quarter of a core that another thread wants too. With less, blocks were used before their memory was there.
NICENESS = 5


class PoolCommit:
    """Memory is given from the pool's beginning, which is used first, to some way ahead of the highest block in use: so
    that it grows with use, as without this.

    Owner: the worker. `begin` before it is ready; from `start` to `stop` a thread of lower priority goes on.
    """

    def __init__(self, kv_cache: KVCache, pool: BlockPool, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._pool = pool
        self._ahead_bytes = ahead_bytes
        memories = kv_cache.device_tensors if kv_cache.device.type == "cpu" else ()
        self._parts = [_Part(memory) for memory in memories]
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """What is to be there at first."""
        while self._commit_piece():
            pass

    def start(self) -> None:
        if self._parts:
            self._thread = threading.Thread(target=self._run, name="pool-commit", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Idempotent."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        if sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        pause_s = LOOK_INTERVAL_S
        while not self._stopping.wait(pause_s) and not all(part.is_whole for part in self._parts):
            began_s = time.thread_time()
            if self._commit_piece():
                pause_s = max(MIN_PAUSE_S, PAUSE_PER_CPU_S * (time.thread_time() - began_s))
            else:
                pause_s = LOOK_INTERVAL_S

    def _commit_piece(self) -> bool:
        """Whether there was something to do."""
        ahead_bytes = self._ahead_bytes // max(1, len(self._parts))
        return any(part.commit_piece(self._pool.num_touched_blocks, ahead_bytes) for part in self._parts)


class _Part:
    """The memory of one group of layers: [num_blocks, bytes_per_block]."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._bytes_per_block = memory.shape[1]
        self._bytes = memory.flatten()
        self._num_committed = 0

    @property
    def is_whole(self) -> bool:
        return self._num_committed >= self._bytes.numel()

    def commit_piece(self, num_touched_blocks: int, ahead_bytes: int) -> bool:
        wanted = min(num_touched_blocks * self._bytes_per_block + ahead_bytes, self._bytes.numel())
        if self._num_committed >= wanted:
            return False
        piece = self._bytes[self._num_committed : self._num_committed + HUGE_PAGE_BYTES]
        commit(piece)
        self._num_committed += piece.numel()
        return True
