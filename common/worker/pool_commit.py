"""Has the system give the first of the KV pool's memory before requests need it.

A first write to a page costs the time of clearing it, and more in a virtual machine: the event loop wrote arriving
blocks at 350 MB/s.
"""

from __future__ import annotations

import os
import threading

import torch

from common.engine.kv_cache import KVCache
from common.kernels.cpu.huge_pages import commit
from common.thread_slice import compute_at_length

# Blocks are used from the first on, and what lies further is needed later, if at all.
MAX_COMMITTED_BYTES = 2**30
SLICE_BYTES = 16 * 2**20
NICE = 19


def commit_pool(kv_cache: KVCache) -> threading.Thread:
    """In a thread of its own, which gives way to all others."""
    thread = threading.Thread(target=_commit, args=(kv_cache,), name="pool commit", daemon=True)
    thread.start()
    return thread


def _commit(kv_cache: KVCache) -> None:
    if kv_cache.device.type != "cpu":
        return
    compute_at_length()
    os.setpriority(os.PRIO_PROCESS, 0, NICE)  # of this thread, on Linux
    num_bytes_left = MAX_COMMITTED_BYTES
    for pool in kv_cache.device_tensors:
        memory = pool.flatten()[:num_bytes_left]
        num_bytes_left -= memory.numel()
        for part in torch.split(memory, SLICE_BYTES):
            if not commit(part):
                return
