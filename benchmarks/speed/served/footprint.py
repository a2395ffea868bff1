"""What a served fleet takes beside its work: time until it is ready, and memory after some of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.speed.contender import Contender
from benchmarks.speed.measure import Measure
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.served.slipstream_server import KV_MIB, SlipstreamServer

SEED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """100 prompts of 450 tokens are 1 GB of KV in bf16, which are transferred."""

    weight_mib: float
    name: str = "memory"
    about: str = "footprint: seconds until ready, and memory after 100 requests and 1 GB of KV"
    num_requests: int = 100
    prompt_tokens: int = 450
    concurrency: int = 8

    @property
    def measures(self) -> Mapping[str, Measure]:
        return {
            "ready_s": Measure(unit="s from start to ready, slowest worker", higher_is_better=False),
            "excess_mib": Measure(unit="MiB beside weights and KV pool, largest worker", higher_is_better=False),
        }

    def runs_on(self, contender: Contender) -> bool:
        return isinstance(contender, SlipstreamServer)

    def measure(self, contender: Contender, prompts: Prompts, repeat: int) -> Mapping[str, float]:
        assert isinstance(contender, SlipstreamServer)
        requests = prompts.requests(self.num_requests, self.prompt_tokens, 2, seed=SEED + repeat)
        contender.run(requests, self.concurrency)
        resident_mib = contender.resident_mib()
        return {
            "ready_s": max(contender.ready_s[worker] for worker in resident_mib),
            "excess_mib": max(resident_mib.values()) - self.weight_mib - KV_MIB,
        }
