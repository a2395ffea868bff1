"""`python -m benchmarks.busy_neighbour`: what a decoding engine loses to a process that keeps one core busy.

At each of a step's about 200 parallel regions the threads wait for the slowest one. The one that shares its core gets
half of it, so half the throughput is a fair share; threads that spin without a bound took ten times. With a verdict.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.speed.contender import Contender
from benchmarks.speed.engine_process import EngineProcess, EngineSpec
from benchmarks.speed.metrics import step_ms
from benchmarks.speed.prompts import Prompts
from common.checkpoint import resolve_model

PROMPT_TOKENS = 16
OUTPUT_TOKENS = 96
MAKE_TIMEOUT_S = 60.0
FAIR_SHARE = 0.5
MIN_SHARE = 0.6 * FAIR_SHARE  # the rest goes for switches from one to the other


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.busy_neighbour", description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=4, help="pairs of runs, alone and beside the neighbour")
    options = parser.parse_args(arguments)
    model = resolve_model(options.model)
    prompts = Prompts(model)
    num_threads = len(os.sched_getaffinity(0))
    engine = EngineProcess(EngineSpec(name="ours", module="slipstream"), model, num_threads, MAKE_TIMEOUT_S)
    engine.start()
    shares = []
    try:
        for repeat in range(options.repeats):
            alone_ms = _step_ms(engine, prompts, options.batch, seed=2 * repeat)
            with busy_process():
                beside_ms = _step_ms(engine, prompts, options.batch, seed=2 * repeat + 1)
            shares.append(alone_ms / beside_ms)
            print(f"a step takes {alone_ms:.1f} ms alone, {beside_ms:.1f} beside a busy process: {shares[-1]:.2f}")
    finally:
        engine.close()
    share = statistics.median(shares)
    met = share >= MIN_SHARE
    print(f"{'OK' if met else 'MISSED'}: {share:.2f} of the throughput is left; a fair share is {FAIR_SHARE}")
    return 0 if met else 1


@contextmanager
def busy_process() -> Iterator[None]:
    """Beside it runs a process that never waits."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _step_ms(engine: Contender, prompts: Prompts, batch: int, *, seed: int) -> float:
    requests = prompts.requests(batch, PROMPT_TOKENS, OUTPUT_TOKENS, seed=seed)
    return step_ms(engine.run(requests, None), PROMPT_TOKENS)


if __name__ == "__main__":
    sys.exit(main())
