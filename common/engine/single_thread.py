"""Runs small tensor operations without torch's thread pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread(device: torch.device) -> Iterator[None]:
    """On a CPU, one thread in here: the calling thread's setting alone changes, and comes back.

    Operations on a few rows of logits take microseconds, and waiting for the other threads at the end of each takes
    longer where cores are shared: drawing 64 tokens of 49,152 took 13 ms with one thread, 260 with two, on two
    busy cores.
    """
    if device.type != "cpu":
        yield
        return
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
