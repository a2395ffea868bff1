"""Runs the cases of one cluster: sets caches up, sends the requests, compares tokens, checks the path."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from benchmarks.exactness.case import Cached, Case, FleetSpec, Sampling, part_cached
from benchmarks.exactness.compare import Comparison, ReferenceSource, Tie, compare_tokens, judge
from benchmarks.exactness.fleet import Ask, Fleet, Served, Traffic
from benchmarks.exactness.path import TIMING_FAULTS, describe_path, path_faults
from benchmarks.exactness.reference import Reference
from benchmarks.exactness.workload import Workload
from common.config import DType, EngineConfig, Role
from common.request import TokenLogprob
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

KV_MEMORY = "1500MiB"
MAX_TRIES = 3
FEW_BLOCKS_SHARE = 0.4  # of what 16 requests need together
HOST_BLOCKS_FACTOR = 6  # of those few: room for all others, two choices each
LOGPROB_TOLERANCE = 1e-3  # natural log: the last bits of two float32 computations
SEED = 20_240_607


class DrawnChoice(NamedTuple):
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    name: str
    num_prompts: int
    num_tokens: int
    ties: tuple[Tie, ...]
    faults: tuple[str, ...]  # wrong tokens first, then wrong paths
    path: str
    elapsed_s: float

    @property
    def passed(self) -> bool:
        return not self.faults


@dataclass(slots=True, kw_only=True)
class Runner:
    """Owner of what each choice drew when it was first drawn with a seed, which all other cases must repeat."""

    workload: Workload
    source: ReferenceSource
    seeded: dict[tuple[Sampling, str, int], DrawnChoice] = field(default_factory=dict)

    @contextmanager
    def fleet(self, spec: FleetSpec) -> Iterator[Fleet]:
        """A cluster with the flags of `spec`, stopped after it. Raises what the launcher raises."""
        with Cluster(cluster_config(spec, self.workload)) as cluster:
            fleet = Fleet(cluster)
            try:
                yield fleet
            finally:
                fleet.close()

    def run(self, fleet: Fleet, spec: FleetSpec, case: Case) -> CaseResult:
        """A case that waits for a preemption is tried up to MAX_TRIES times; its tokens are compared each time."""
        for _ in range(MAX_TRIES):
            result = self._run_once(fleet, spec, case)
            if not result.faults or not TIMING_FAULTS.issuperset(result.faults):
                break
        return result

    def _run_once(self, fleet: Fleet, spec: FleetSpec, case: Case) -> CaseResult:
        references = self.workload.references[: case.num_prompts]
        fleet.reset_prefix_cache(*case.resets)
        if case.prefill_cached is Cached.PART:
            self._cache_parts(fleet, case, references)
        if case.preempts and fleet.split:
            self._teach_short_answers(fleet, 3 * len(references))
        started_s = time.monotonic()
        asks = [self._ask(spec, case, reference) for reference in references]
        if case.preempts:
            # The longest first: short ones then fill the pool to its last blocks.
            asks.sort(key=lambda ask: -len(ask.reference.prompt_token_ids))
        traffic = fleet.serve(asks, case.num_at_once)
        elapsed_s = time.monotonic() - started_s
        verdict = judge(self._compare(case, traffic))
        prefill_workers = fleet.worker_ids(Role.PREFILL)
        workers = (prefill_workers[0] if prefill_workers else None, fleet.worker_ids(Role.DECODE)[0])
        return CaseResult(
            name=f"{spec.name}: {case.name}",
            num_prompts=len(asks),
            num_tokens=verdict.num_tokens,
            ties=verdict.ties,
            faults=(*verdict.failures, *path_faults(spec, case, traffic, workers)),
            path=describe_path(traffic),
            elapsed_s=elapsed_s,
        )

    def _ask(self, spec: FleetSpec, case: Case, reference: Reference) -> Ask:
        return Ask(
            reference=reference,
            num_new_tokens=_num_new_tokens(spec, self.workload),
            as_source=case.as_source,
            cache_salt=_salt(case, reference),
            num_choices=case.num_choices,
            seed=None if case.sampling is Sampling.GREEDY else SEED,
            penalised=case.sampling is Sampling.PENALISED,
        )

    def _cache_parts(self, fleet: Fleet, case: Case, references: Sequence[Reference]) -> None:
        """One token is drawn by prefill alone, so a first prompt fills its cache only; two fill both."""
        for num_new_tokens, side in ((2, 1), (1, 0)):
            asks = [
                Ask(
                    reference=reference,
                    num_new_tokens=num_new_tokens,
                    num_prompt_tokens=max(1, part_cached(len(reference.prompt_token_ids))[side]),
                    cache_salt=_salt(case, reference),
                )
                for reference in references
            ]
            fleet.serve(asks, num_at_once=case.num_at_once)

    def _teach_short_answers(self, fleet: Fleet, num_answers: int) -> None:
        """A decode worker grants credits for as many tokens as most answers had: after these, for very few."""
        reference = min(self.workload.references, key=lambda one: len(one.prompt_token_ids))
        fleet.serve([Ask(reference=reference, num_new_tokens=2)] * num_answers, num_at_once=16)

    def _compare(self, case: Case, traffic: Traffic) -> Iterator[Comparison]:
        for served in traffic.served:
            if len(served.choices) != case.num_choices:
                failure = f"{served.ask.reference.name}: {len(served.choices)} choices"
                yield Comparison(num_tokens=0, failure=failure)
            for index, token_ids in enumerate(served.choices):
                if case.sampling is not Sampling.GREEDY:
                    yield self._compare_seeded(served, case.sampling, index)
                else:
                    reference = served.ask.reference.first(served.ask.num_new_tokens)
                    yield compare_tokens(token_ids, reference, self.source)

    def _compare_seeded(self, served: Served, sampling: Sampling, index: int) -> Comparison:
        name = served.ask.reference.name
        drawn = DrawnChoice(served.choices[index], served.logprobs[index])
        expected = self.seeded.setdefault((sampling, name, index), drawn)
        num_tokens = min(len(drawn.token_ids), len(expected.token_ids))  # fleets may ask for more tokens or fewer
        failure = None
        if drawn.token_ids[:num_tokens] != expected.token_ids[:num_tokens]:
            failure = f"{name}: seeded tokens differ: {drawn.token_ids}, first {expected.token_ids}"
        elif len(drawn.token_ids) != served.ask.num_new_tokens:
            failure = f"{name}: {len(drawn.token_ids)} seeded tokens served, {served.ask.num_new_tokens} asked for"
        elif served.ask.penalised and not _same_logprobs(drawn.logprobs, expected.logprobs, num_tokens):
            failure = f"{name}: logprobs differ: {drawn.logprobs}, first {expected.logprobs}"
        return Comparison(num_tokens=num_tokens, failure=failure)


def _same_logprobs(drawn: Sequence[TokenLogprob], expected: Sequence[TokenLogprob], num_tokens: int) -> bool:
    """Of the first `num_tokens` tokens, and there must be as many."""
    pairs = list(zip(drawn, expected, strict=False))[:num_tokens]
    return len(pairs) == num_tokens and all(
        one.token_id == other.token_id and abs(one.logprob - other.logprob) < LOGPROB_TOLERANCE for one, other in pairs
    )


def cluster_config(spec: FleetSpec, workload: Workload) -> ClusterConfig:
    longest_prompt = max(len(one.prompt_token_ids) for one in workload.references)
    engine = EngineConfig(
        model=str(workload.model),
        dtype=DType.FLOAT32,
        block_size=spec.block_size,
        max_num_batched_tokens=spec.max_num_batched_tokens,
        max_model_len=longest_prompt + _num_new_tokens(spec, workload),
        kv_memory=KV_MEMORY,
    )
    few_bytes = _few_blocks(spec, workload) * spec.block_size * workload.bytes_per_token
    swap_bytes = HOST_BLOCKS_FACTOR * few_bytes if spec.swaps else 0
    few = replace(engine, kv_memory=str(few_bytes), swap_space=str(swap_bytes))
    return ClusterConfig(
        max_local_prefill_tokens=0,  # the cases say where prompts are computed
        role=Role.BOTH if spec.both else None,
        engine=engine,
        decode_engine=few if spec.short_of_blocks else None,
        probe_interval_s=0,  # the workers' counters are to be the cases' own
        grpc_port=0,
        http_port=0,
    )


def _few_blocks(spec: FleetSpec, workload: Workload) -> int:
    """Enough for the longest request, too few for 16 of the mean length."""
    num_new_tokens = _num_new_tokens(spec, workload)
    needed = [-(-(len(one.prompt_token_ids) + num_new_tokens) // spec.block_size) for one in workload.references]
    return max(max(needed) + 2, int(FEW_BLOCKS_SHARE * 16 * sum(needed) / len(needed)))


def _num_new_tokens(spec: FleetSpec, workload: Workload) -> int:
    return spec.num_new_tokens or workload.num_new_tokens


def _salt(case: Case, reference: Reference) -> str:
    return reference.name if case.salted else ""
