"""Goes away in each stage and by each way, a few times each, on a small random-weight model; a verdict last."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.client_gone.caller import WAYS
from benchmarks.client_gone.departure import Departure, StageMissedError, depart
from benchmarks.client_gone.stage import Fleet, Stage
from benchmarks.random_model import save_random_model
from common.config import DType, EngineConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

PROMPT_TOKENS = 1000
CHUNK_TOKENS = 64
MAX_FREED_S = 1.0
# In the median. A cancel that arrives in mid-step ends with it, and the look before leaving may be a step old. A step
# takes a millisecond here, and one departure's word may wait for a core on its way for several.
MAX_STEPS = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_gone", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="departures of each stage and way (default: 5)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = EngineConfig(
            model=str(save_random_model(Path(folder))),
            dtype=DType.FLOAT32,
            kv_memory="512MiB",
            num_threads=1,
            max_num_seqs=2,
            max_num_batched_tokens=CHUNK_TOKENS,
        )
        with Cluster(ClusterConfig(engine=engine, grpc_port=0, http_port=0, max_local_prefill_tokens=0)) as cluster:
            return _report(Fleet(cluster), options.repeats)


def _report(fleet: Fleet, repeats: int) -> int:
    print(f"{'stage':<30}{'way':<26}{'freed, ms: median, most':>26}{'steps for nobody: median, most':>32}")
    faults: list[str] = []
    for stage in Stage:
        for way in WAYS:
            departures = _departures(fleet, stage, way, repeats, faults)
            if not departures:
                continue
            freed_s = [one.freed_s for one in departures]
            most = max(freed_s)
            each = [max(one.num_prefill_steps, one.num_decode_steps) for one in departures]
            steps = statistics.median(each)
            print(
                f"{stage:<30}{way:<26}{statistics.median(freed_s) * 1000:>18.0f}{most * 1000:>8.0f}"
                f"{steps:>24.0f}{max(each):>8}"
            )
            if most > MAX_FREED_S or steps > MAX_STEPS:
                faults.append(f"{stage}, {way}: {most * 1000:.0f} ms, {steps:.0f} steps")
    fleet.close()
    print(f"FAILED: {'; '.join(faults)}" if faults else f"PASSED: free within {MAX_FREED_S:g} s and {MAX_STEPS} steps")
    return 1 if faults else 0


def _departures(fleet: Fleet, stage: Stage, way: str, repeats: int, faults: list[str]) -> list[Departure]:
    try:
        return [
            depart(fleet, stage, way, prompt_tokens=PROMPT_TOKENS, chunk_tokens=CHUNK_TOKENS) for _ in range(repeats)
        ]
    except (StageMissedError, AssertionError) as error:
        faults.append(f"{stage}, {way}: {error}")
        return []


if __name__ == "__main__":
    sys.exit(main())
