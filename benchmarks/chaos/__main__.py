"""`make chaos`: a line per round, the table of coverage, the verdict last; exit status 1 when anything was harmed."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.chaos.asker import Asker
from benchmarks.chaos.cell import STRIKES, Strike
from benchmarks.chaos.coverage import Coverage
from benchmarks.chaos.fleet import Fleet, FleetSpec, small_engine
from benchmarks.chaos.observer import Observer
from benchmarks.chaos.report import Tally, round_lines, tables, verdict_line
from benchmarks.chaos.round import Round
from benchmarks.chaos.schedule import turns
from benchmarks.chaos.small_model import save_small_model
from benchmarks.chaos.workload import TINY_SIZES, make_questions
from common.config import DType

LEAST_REQUESTS = 300
MAX_PASSES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the whole schedule follows from it")
    parser.add_argument("--strikes", default="", help="comma-separated, such as kill-decode,cut-link; default: all")
    parser.add_argument("--passes", type=int, default=MAX_PASSES, help="times that a fault is tried to cover a stage")
    parser.add_argument("--minutes", type=float, default=8.0, help="no round begins after so long")
    options = parser.parse_args(arguments)
    names = [name for name in options.strikes.split(",") if name]
    strikes = [strike for strike in STRIKES if not names or str(strike) in names]
    return asyncio.run(_run(options, strikes))


async def _run(options: argparse.Namespace, strikes: Sequence[Strike]) -> int:
    started_s = time.monotonic()
    coverage, tally = Coverage(strikes), Tally()
    with tempfile.TemporaryDirectory(prefix="slipstream-chaos-model-") as folder:
        model = save_small_model(Path(folder) / "small")
        engine = small_engine(model, dtype=DType.FLOAT32, kv_memory="24MiB", max_num_seqs=32)
        spec = FleetSpec(
            model=model,
            prefill_engine=small_engine(model, dtype=DType.FLOAT32, kv_memory="24MiB", max_num_batched_tokens=32),
            decode_engine=engine,
        )
        async with Fleet(spec) as fleet, Asker(fleet, make_questions(options.seed, TINY_SIZES)) as asker:
            print(f"the fleet is ready after {time.monotonic() - started_s:.1f} s; logs in {fleet.log_dir}", flush=True)
            await asker.learn()
            print(f"{len(asker.references)} questions answered after {time.monotonic() - started_s:.1f} s", flush=True)
            rounds = Round(fleet, asker, Observer(fleet), coverage)
            for turn in turns(options.seed, strikes, coverage, options.passes):
                if time.monotonic() - started_s > options.minutes * 60:
                    break
                source = random.Random(f"round {options.seed} {turn.number}")
                result = await rounds.run(turn, source)
                coverage.add(turn.strike, ((stage, len(ids)) for stage, ids in result.struck.items()))
                tally.add(result)
                print("\n".join(round_lines(turn.number, result, in_queue=turn.in_queue)), flush=True)
    print(tables(coverage, tally))
    line = verdict_line(tally, coverage.gaps, LEAST_REQUESTS, time.monotonic() - started_s)
    print(line)
    return 0 if line.startswith("UNHARMED") else 1


if __name__ == "__main__":
    sys.exit(main())
