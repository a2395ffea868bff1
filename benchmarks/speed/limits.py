"""What the machine itself can do: memory read and bf16 GEMM. `python -m benchmarks.speed.limits` prints them as JSON.

Measured in a process of its own, so that no thread of it is left beside the engines.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from slipstream.cores import WORKER_ENVIRONMENT

ROOT = Path(__file__).parents[2]
BUFFER_BYTES = 512 * 2**20  # far beyond the caches
GEMM_ROWS = (256, 512, 1024)
GEMM_SIZE = 1536  # columns and depth: the largest of SmolLM2-135M's layers
NUM_RUNS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """GB/s (10^9) with one and two threads, GF/s with all threads at the best number of rows."""

    read_gb_per_s_1: float
    read_gb_per_s: float
    gemm_gf_per_s: float


def measure_limits(num_threads: int) -> Limits:
    """In a child process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed.limits", str(num_threads)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **WORKER_ENVIRONMENT, "OMP_NUM_THREADS": str(num_threads), "PYTHONPATH": str(ROOT)},
    )
    return Limits(**json.loads(done.stdout))


def _measure(num_threads: int) -> Limits:
    import torch

    buffer = torch.ones(BUFFER_BYTES // 4)  # float32: torch adds these faster than memory brings them
    read = {}
    for threads in (1, num_threads):
        torch.set_num_threads(threads)
        read[threads] = BUFFER_BYTES / _median_s(buffer.sum) / 1e9
    weight = torch.randn(GEMM_SIZE, GEMM_SIZE).bfloat16()  # [out, in]
    rates = []
    for num_rows in GEMM_ROWS:
        rows = torch.randn(num_rows, GEMM_SIZE).bfloat16()
        seconds = _median_s(partial(torch.nn.functional.linear, rows, weight))
        rates.append(2 * num_rows * GEMM_SIZE**2 / seconds / 1e9)
    return Limits(read_gb_per_s_1=read[1], read_gb_per_s=read[num_threads], gemm_gf_per_s=max(rates))


def _median_s(run: Callable[[], object]) -> float:
    run()
    times_s = []
    for _ in range(NUM_RUNS):
        began_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - began_s)
    return statistics.median(times_s)


if __name__ == "__main__":
    print(json.dumps(asdict(_measure(int(sys.argv[1])))))
