"""The workloads of the comparison. Greedy, fixed lengths, no stop at EOS; lengths are in tokens.

Row letters are those of the table in RESULTS.md. h and i need a server: see `interference.py` and `goodput.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from benchmarks.speed import metrics
from benchmarks.speed.contender import Contender
from benchmarks.speed.measure import Measure
from benchmarks.speed.metrics import Metric
from benchmarks.speed.prompts import Prompts


class Workload(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    @property
    def measures(self) -> Mapping[str, Measure]: ...

    def runs_on(self, contender: Contender) -> bool: ...

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        """One run. Every contender gets the same prompts in the same repeat."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchWorkload:
    """Requests sent at once, or `concurrency` at a time.

    `warmed`: the prompts are sent once before, so that their KV is cached: what decodes at a long context need not
    be prefilled again in each repeat. Their blocks are distinct all the same. `needs_prefix_cache`: there is nothing
    to measure without one. `served`: runs on our servers, too; peers' servers run all of them.
    """

    name: str
    about: str
    num_requests: int
    prompt_tokens: int
    output_tokens: int
    metrics: tuple[Metric, ...]
    shared_tokens: int = 0
    concurrency: int | None = None
    warmed: bool = False
    needs_prefix_cache: bool = False
    served: bool = False

    @property
    def measures(self) -> Mapping[str, Measure]:
        return {one.name: Measure(unit=one.unit, higher_is_better=one.higher_is_better) for one in self.metrics}

    def runs_on(self, contender: Contender) -> bool:
        if self.needs_prefix_cache and not contender.has_prefix_cache:
            return False
        if contender.is_ours and contender.is_server and not self.served:
            return False
        return self.concurrency is None or contender.takes_arrivals

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        requests = prompts.requests(
            self.num_requests,
            self.prompt_tokens,
            self.output_tokens,
            seed=zlib.crc32(self.name.encode()) + (0 if self.warmed else repeat),
            shared_tokens=self.shared_tokens,
        )
        if self.warmed and contender.has_prefix_cache and (repeat == 0 or self.needs_prefix_cache):
            contender.run([replace(one, max_tokens=1) for one in requests], self.concurrency)
        answers = contender.run(requests, self.concurrency)
        for request, answer in zip(requests, answers, strict=True):
            if len(answer.times_s) != request.max_tokens:
                raise ValueError(f"{contender.name}: {len(answer.times_s)} tokens of {request.max_tokens}")
        return {one.name: one.compute(answers, self.prompt_tokens) for one in self.metrics}


SERVED_METRICS = (metrics.OUTPUT_TOKENS_PER_S, metrics.TTFT_MS, metrics.TPOT_MS, metrics.FIRST_GAP_P95)


def _decode(batch: int) -> BatchWorkload:
    return BatchWorkload(
        name=f"b{batch}",
        about=f"decode: batch {batch}, 16 in, 128 out",
        num_requests=batch,
        prompt_tokens=16,
        output_tokens=128,
        metrics=(metrics.STEP_MS,),
    )


def _prefill(num_tokens: int) -> BatchWorkload:
    return BatchWorkload(
        name=f"c{num_tokens}",
        about=f"prefill: one prompt of {num_tokens:,}, 1 out",
        num_requests=1,
        prompt_tokens=num_tokens,
        output_tokens=1,
        metrics=(metrics.PREFILL_TOKENS_PER_S,),
    )


def _long_decode(batch: int) -> BatchWorkload:
    return BatchWorkload(
        name=f"f{batch}",
        about=f"long: batch {batch} at context 2,000, 32 out",
        num_requests=batch,
        prompt_tokens=2000,
        output_tokens=32,
        metrics=(metrics.STEP_MS,),
        warmed=True,
    )


BATCH_WORKLOADS = (
    BatchWorkload(
        name="a",
        about="offline: 32 requests at once, 256 in, 64 out",
        num_requests=32,
        prompt_tokens=256,
        output_tokens=64,
        metrics=(metrics.OUTPUT_TOKENS_PER_S,),
        served=True,
    ),
    *(_decode(batch) for batch in (1, 8, 32)),
    *(_prefill(num_tokens) for num_tokens in (1024, 2048)),
    BatchWorkload(
        name="d",
        about="prefix hit: the prompt of 2,048 again, 1 out",
        num_requests=1,
        prompt_tokens=2048,
        output_tokens=1,
        metrics=(metrics.TTFT_MS,),
        warmed=True,
        needs_prefix_cache=True,
    ),
    BatchWorkload(
        name="e",
        about="served: 32 requests, 8 streams at a time, 256 in, 64 out",
        num_requests=32,
        prompt_tokens=256,
        output_tokens=64,
        metrics=SERVED_METRICS,
        concurrency=8,
        served=True,
    ),
    *(_long_decode(batch) for batch in (8, 32)),
    BatchWorkload(
        name="g",
        about="shared prefix: 64 requests at once, 1,000 shared and 50 own in, 32 out",
        num_requests=64,
        prompt_tokens=1050,
        output_tokens=32,
        metrics=(metrics.OUTPUT_TOKENS_PER_S,),
        shared_tokens=1000,
    ),
)
