"""What is wanted, as ratios within one run, and whether the results have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.speed.contenders import BOTH, IN_PROCESS, SPLIT, VLLM_NAME
from benchmarks.speed.results import Results
from benchmarks.speed.served.goodput import RATES, share_name
from benchmarks.speed.workload import BATCH_WORKLOADS, BatchWorkload

OTHERS_FACTOR = 1.1
MIN_OFFLINE_FACTOR = 1.0  # rows a and c
VLLM_FACTORS = {"b1": 1.8, "b8": 1.5, "b32": 1.3}
MIN_MEMORY_SHARE = 0.75
MIN_GEMM_SHARE = 0.85
MIN_SERVED_SHARE = 0.9
MAX_EXCESS_MIB = 400.0
MAX_READY_S = 8.0
MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A target against what was found. `met` is None where it can't be said from these numbers."""

    about: str
    found: float
    wanted: float
    at_least: bool
    is_bound: bool = False  # what is wanted of a part is at least what was found of the whole

    @property
    def met(self) -> bool | None:
        meets = self.found >= self.wanted if self.at_least else self.found <= self.wanted
        return meets or (None if self.is_bound else False)


def judge(results: Results) -> list[Judged]:
    """The targets for which there are numbers."""
    parts: tuple[Callable[[Results], Iterator[Judged]], ...] = (
        _against_peers, _against_vllm, _served, _interference, _goodput, _router, _limits, _serving_cost, _footprint,
    )  # fmt: skip
    return [one for part in parts for one in part(results)]


def advantage(
    results: Results, workload: str, measure: str, ours: str, higher_is_better: bool, *, servers_only: bool = False
) -> float | None:
    """How many times as good as the best peer, or as the best peer's server; None without a peer's number."""
    own = results.median(workload, ours, measure)
    peers = [one.name for one in results.peers if one.is_server or not servers_only]
    others = [results.median(workload, peer, measure) for peer in peers]
    known = [value for value in others if value is not None]
    if own is None or not known:
        return None
    return own / max(known) if higher_is_better else min(known) / own


def _against_peers(results: Results) -> Iterator[Judged]:
    for workload in BATCH_WORKLOADS:
        if workload.name == "e":
            continue
        (metric,) = workload.metrics
        found = advantage(results, workload.name, metric.name, IN_PROCESS, metric.higher_is_better)
        if found is not None:
            wanted = MIN_OFFLINE_FACTOR if workload.name[0] in "ac" else OTHERS_FACTOR
            about = f"{workload.name}: {metric.unit}, times as good as the best peer"
            yield Judged(about=about, found=found, wanted=wanted, at_least=True)


def _against_vllm(results: Results) -> Iterator[Judged]:
    for workload, wanted in VLLM_FACTORS.items():
        ours = results.median(workload, IN_PROCESS, "step_ms")
        theirs = results.median(workload, VLLM_NAME, "step_ms")
        if ours is not None and theirs is not None:
            about = f"{workload}: decode steps, times as fast as {VLLM_NAME}"
            yield Judged(about=about, found=theirs / ours, wanted=wanted, at_least=True)


def _served(results: Results) -> Iterator[Judged]:
    wishes = (
        (BOTH, "output_tokens_per_s", True, 1.3),
        (BOTH, "ttft_ms", False, 1.0),
        (SPLIT, "output_tokens_per_s", True, 1.0),
        (SPLIT, "tpot_ms", False, 1 / 0.7),
    )
    for ours, measure, higher_is_better, wanted in wishes:
        found = advantage(results, "e", measure, ours, higher_is_better, servers_only=True)
        if found is not None:
            about = f"e: {ours}, {measure}, times as good as the best server"
            yield Judged(about=about, found=found, wanted=wanted, at_least=True)
    gap = results.median("e", SPLIT, "first_gap_p95")
    if gap is not None:
        about = f"e: {SPLIT}, gap between tokens 1 and 2 in TPOT, p95"
        yield Judged(about=about, found=gap, wanted=1.5, at_least=False)


def _interference(results: Results) -> Iterator[Judged]:
    found = results.median("h", SPLIT, "p99_ratio")
    if found is not None:
        about = f"h: {SPLIT}, p99 between tokens, disturbed in parts of undisturbed"
        yield Judged(about=about, found=found, wanted=1.3, at_least=False)


def _goodput(results: Results) -> Iterator[Judged]:
    for rate in RATES:
        split, both = (results.median("i", ours, share_name(rate)) for ours in (SPLIT, BOTH))
        if split is not None or both is not None:
            about = f"i: good share at {rate:g}/s, {SPLIT} less {BOTH}"
            yield Judged(about=about, found=(split or 0.0) - (both or 0.0), wanted=0.0, at_least=True)


def _router(results: Results) -> Iterator[Judged]:
    for measure, about, wanted in (
        ("us_per_token", "router: CPU µs per token at 32 streams", 10.0),
        ("ms_per_prompt", "router: CPU ms per prompt of 2,000 tokens", 3.0),
    ):
        found = results.median("router", BOTH, measure)
        if found is not None:
            yield Judged(about=about, found=found, wanted=wanted, at_least=False)


def _limits(results: Results) -> Iterator[Judged]:
    read, gemm = results.limit("read_gb_per_s"), results.limit("gemm_gf_per_s")
    model = results.model
    decode_ms = results.median("b1", IN_PROCESS, "step_ms")
    if read and decode_ms:
        (workload,) = (one for one in BATCH_WORKLOADS if one.name == "b1")
        num_bytes = model.weight_bytes + model.kv_bytes_per_token * _mean_context(workload)
        found = num_bytes / (decode_ms / 1e3) / (read * 1e9)
        about = "b1: weights and KV read, in parts of memory bandwidth"
        yield Judged(about=about, found=found, wanted=MIN_MEMORY_SHARE, at_least=True)
    for name in ("c1024", "c2048"):
        rate = results.median(name, IN_PROCESS, "prefill_tokens_per_s")
        if gemm and rate:
            found = 2 * model.num_linear_parameters * rate / (gemm * 1e9)
            about = f"{name}: linears' FLOP over the whole prefill's time, in parts of the GEMM rate"
            yield Judged(about=about, found=found, wanted=MIN_GEMM_SHARE, at_least=True, is_bound=True)


def _mean_context(workload: BatchWorkload) -> float:
    return workload.prompt_tokens + workload.output_tokens / 2


def _serving_cost(results: Results) -> Iterator[Judged]:
    for name, num_streams in (("e", 8), ("a", 32)):
        served, direct = (results.median(name, ours, "output_tokens_per_s") for ours in (BOTH, IN_PROCESS))
        if served is not None and direct is not None:
            about = f"{name}: {BOTH} in parts of in-process output tokens/s, {num_streams} streams"
            yield Judged(about=about, found=served / direct, wanted=MIN_SERVED_SHARE, at_least=True)


def _footprint(results: Results) -> Iterator[Judged]:
    body_mib = 2 * results.model.num_linear_parameters / MIB
    for ours in (BOTH, SPLIT):
        ready_s, excess_mib = (results.median("memory", ours, measure) for measure in ("ready_s", "excess_mib"))
        if ready_s is not None:
            about = f"memory: {ours}, seconds until ready"
            yield Judged(about=about, found=ready_s, wanted=MAX_READY_S, at_least=False)
        if excess_mib is not None:
            # Who prefills and decodes may hold its layers in two layouts.
            wanted = MAX_EXCESS_MIB + (body_mib if ours == BOTH else 0.0)
            about = f"memory: {ours}, MiB beside weights and KV pool"
            yield Judged(about=about, found=excess_mib, wanted=wanted, at_least=False)
