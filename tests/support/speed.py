"""Contenders that compute nothing, and results that nobody measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.speed.contender import ContenderError
from benchmarks.speed.limits import Limits
from benchmarks.speed.request import Answer, Request
from benchmarks.speed.results import ModelSize, Results, Taker

STEP_S = 0.01


def make_request(max_tokens: int = 4, num_tokens: int = 3) -> Request:
    return Request(text="a b c", token_ids=tuple(range(num_tokens)), max_tokens=max_tokens)


def make_results(*takers: tuple[str, bool], servers: Sequence[str] = ()) -> Results:
    """Takers by name, and whether they are ours; `servers` are those that are."""
    return Results(
        model=ModelSize(weight_bytes=10**8, kv_bytes_per_token=1000, num_linear_parameters=10**8),
        limits=[Limits(read_gb_per_s_1=10.0, read_gb_per_s=20.0, gemm_gf_per_s=400.0)],
        takers=[Taker(name=name, version="1", is_ours=ours, is_server=name in servers) for name, ours in takers],
    )


@dataclass(slots=True, kw_only=True)
class FakeContender:
    """One step every STEP_S for each request; `missing` says why it can't start, `fails` why it can't run."""

    name: str
    is_ours: bool = False
    is_server: bool = False
    has_prefix_cache: bool = True
    takes_arrivals: bool = True
    missing: str = ""
    fails: str = ""
    version: str = "1"
    log: list[str] = field(default_factory=list)
    seen: list[tuple[Request, ...]] = field(default_factory=list)

    def start(self) -> None:
        if self.missing:
            raise ContenderError(self.missing)

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        self.log.append(self.name)
        self.seen.append(tuple(requests))
        if self.fails:
            raise ContenderError(self.fails)
        return [
            Answer(sent_s=0.0, times_s=tuple(STEP_S * (1 + step) for step in range(one.max_tokens))) for one in requests
        ]

    def close(self) -> None:
        self.log.append(f"{self.name} closed")
