"""Runs workloads on contenders, A B A B: what the machine does beside them hits all of them alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from benchmarks.speed.contender import Contender, ContenderError
from benchmarks.speed.limits import measure_limits
from benchmarks.speed.other_load import MAX_OTHER_CORES, OtherLoad, settle
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.results import OTHER_CORES, Results, Taker
from benchmarks.speed.served.sse import HttpStatusError
from benchmarks.speed.workload import Workload
from common.errors import SlipstreamError

# A run that takes longer than this is not repeated: what lasts so long hardly differs from one to the next.
MAX_REPEATED_S = 45.0


class Comparison:
    """Owns the contenders from start to close, and writes what they do into `results`. Owned by one thread."""

    def __init__(
        self,
        contenders: Sequence[Contender],
        workloads: Sequence[Workload],
        prompts: Prompts,
        results: Results,
        *,
        num_threads: int,
        repeats: int,
        keep: Callable[[Results], None] = lambda results: None,
    ) -> None:
        """`keep` is called after each workload."""
        self._contenders = contenders
        self._workloads = workloads
        self._prompts = prompts
        self._results = results
        self._num_threads = num_threads
        self._repeats = repeats
        self._keep = keep

    def run(self) -> None:
        """Limits are measured before and after: an idle machine gives the same ones."""
        self._results.limits.append(measure_limits(self._num_threads))
        with self._started() as contenders:
            for workload in self._workloads:
                self._compare(workload, [one for one in contenders if workload.runs_on(one)])
                self._keep(self._results)
        self._results.limits.append(measure_limits(self._num_threads))

    @contextmanager
    def _started(self) -> Iterator[list[Contender]]:
        started: list[Contender] = []
        try:
            for contender in self._contenders:
                if not any(workload.runs_on(contender) for workload in self._workloads):
                    continue
                began_s = time.monotonic()
                try:
                    contender.start()
                except (ContenderError, SlipstreamError, OSError) as error:
                    self._results.missing[contender.name] = str(error)
                    _tell(f"{contender.name}: not there: {error}")
                    contender.close()
                    continue
                started.append(contender)
                self._results.takers.append(_taker(contender))
                _tell(f"{contender.name} {contender.version}: ready after {time.monotonic() - began_s:.1f} s")
            yield started
        finally:
            for contender in started:
                contender.close()

    def _compare(self, workload: Workload, contenders: list[Contender]) -> None:
        for repeat in range(self._repeats):
            for contender in list(contenders):
                began_s = time.monotonic()
                try:
                    self._measure(workload, contender, repeat)
                except (ContenderError, HttpStatusError, SlipstreamError, ValueError, OSError) as error:
                    self._results.add_fault(workload.name, contender.name, str(error))
                    _tell(f"{workload.name} {contender.name}: {error}")
                    contenders.remove(contender)
                    continue
                if time.monotonic() - began_s > MAX_REPEATED_S:
                    contenders.remove(contender)

    def _measure(self, workload: Workload, contender: Contender, repeat: int) -> None:
        """One run; a disturbed one is kept, but counts only where there is no other."""
        settle()
        began_s, others = time.monotonic(), OtherLoad()
        run = workload.measure(contender, self._prompts, repeat)
        took_s, other_cores = time.monotonic() - began_s, others.cores()
        self._results.add(workload.name, contender.name, {**run, OTHER_CORES: other_cores})
        told = ", ".join(f"{name} {value:.4g}" for name, value in run.items())
        disturbed = f"; DISTURBED: others used {other_cores:.2f} cores" if other_cores > MAX_OTHER_CORES else ""
        _tell(f"{workload.name} {contender.name}: {told} ({took_s:.1f} s{disturbed})")


def _taker(contender: Contender) -> Taker:
    return Taker(
        name=contender.name, version=contender.version, is_ours=contender.is_ours, is_server=contender.is_server
    )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
