"""The slices of threads, as the kernel tells them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.thread_slice import SHORT_SLICE_S, answer_at_once, compute_at_length

SCHED = Path("/proc/thread-self/sched")


def slice_s() -> float:
    """Of the calling thread."""
    told = [line for line in SCHED.read_text().splitlines() if line.startswith("se.slice")] if SCHED.exists() else []
    if not told:
        pytest.skip("this kernel does not tell its threads' slices")
    return int(told[0].partition(":")[2]) / 1e9


def in_a_thread(work: Callable[[], None]) -> None:
    """The test's own thread keeps what it has."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(work).result()


def test_a_thread_and_those_it_starts_get_a_short_slice() -> None:
    def work() -> None:
        usual_s, nice = slice_s(), os.getpriority(os.PRIO_PROCESS, 0)
        assert answer_at_once()
        assert slice_s() == SHORT_SLICE_S < usual_s
        told = []
        started = threading.Thread(target=lambda: told.append(slice_s()))
        started.start()
        started.join()
        assert told == [SHORT_SLICE_S]
        assert os.getpriority(os.PRIO_PROCESS, 0) == nice

    in_a_thread(work)


def test_the_usual_slice_comes_back() -> None:
    def work() -> None:
        usual_s = slice_s()
        answer_at_once()
        assert compute_at_length()
        assert slice_s() == usual_s

    in_a_thread(work)
