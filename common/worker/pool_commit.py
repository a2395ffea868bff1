"""Has the system give the first of the KV pool's memory before requests need it.

A first write to a page costs the time of clearing it, and more in a virtual machine: the event loop wrote arriving
blocks at 350 MB/s.
"""

from __future__ import annotations

from common.engine.kv_cache import KVCache
from common.kernels.cpu.huge_pages import commit

# Blocks are used from the first on. Half a second at most; what lies further is needed later, if at all.
MAX_COMMITTED_BYTES = 2**29


def commit_pool(kv_cache: KVCache) -> None:
    """Before the worker is ready: a thread beside it would keep the process from mapping memory meanwhile, which held
    up hand-overs for 0.7 s."""
    if kv_cache.device.type != "cpu":
        return
    num_bytes_left = MAX_COMMITTED_BYTES
    for pool in kv_cache.device_tensors:
        memory = pool.flatten()[:num_bytes_left]
        num_bytes_left -= memory.numel()
        commit(memory)
