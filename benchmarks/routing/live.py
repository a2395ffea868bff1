"""Real processes under a multi-turn workload: does the index tell the truth, and what does it buy?

Two prefill and two decode workers with SmolLM2 on this machine, a router with the policy under test; policies by turns,
each run on a cluster of its own, cold.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from benchmarks.routing.multi_turn import Conversation, conversations
from common.config import DType, EngineConfig
from slipstream.client import Client
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster

NUM_CONVERSATIONS = 12
NUM_AT_ONCE = 4
NUM_TURNS = 5
SYSTEM_TOKENS = 320
TURN_TOKENS = 96
ANSWER_TOKENS = 16
VOCAB_SIZE = 49_152
STRIDE = 64
# A turn comes when its user has read the last answer: long after the index knows of it.
THINK_S = 0.3
GOAL_MATCH = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One request: tokens of its prompt, those that the plan expected to be cached, those that were, and its TTFT."""

    prompt_tokens: int
    expected_tokens: int
    cached_tokens: int
    ttft_s: float
    prefill_worker: str

    @property
    def matches(self) -> bool:
        """The index speaks of whole strides, the worker of blocks."""
        return self.expected_tokens <= self.cached_tokens < self.expected_tokens + STRIDE


@dataclass(slots=True)
class LiveRun:
    """All requests of one run."""

    policy: str
    served: list[Served] = field(default_factory=list)

    @property
    def match_rate(self) -> float:
        return sum(one.matches for one in self.served) / len(self.served)

    @property
    def hit_rate(self) -> float:
        return sum(one.cached_tokens for one in self.served) / sum(one.prompt_tokens for one in self.served)

    def ttft_s(self) -> tuple[float, float, float]:
        """Mean, median, 95th percentile."""
        times = [one.ttft_s for one in self.served]
        return statistics.mean(times), statistics.median(times), statistics.quantiles(times, n=20)[18]


def run_live(policies: Sequence[str], num_rounds: int) -> bool:
    """Prints the table; whether the goal was met."""
    runs: dict[str, list[LiveRun]] = {policy: [] for policy in policies}
    for number in range(num_rounds):
        for policy in policies:
            runs[policy].append(_run(policy, seed=number + 1))
    print("\nreal processes: 2 prefill, 2 decode, multi-turn (medians of runs by turns)")
    for policy, seen in runs.items():
        mean_s, median_s, p95_s = (statistics.median(run.ttft_s()[index] for run in seen) for index in range(3))
        hit = statistics.median(run.hit_rate for run in seen)
        match = statistics.median(run.match_rate for run in seen)
        print(
            f"  {policy:<14} hit rate {hit:.3f}  TTFT mean {mean_s * 1000:.0f} ms, p50 {median_s * 1000:.0f} ms, "
            f"p95 {p95_s * 1000:.0f} ms  as the plan expected: {match:.1%}"
        )
    ours = min(run.match_rate for run in runs["prefix_aware"])
    print(f"  tokens reused as the index foretold, worst run: {ours:.1%} of requests (goal {GOAL_MATCH:.0%})")
    return ours >= GOAL_MATCH


def _run(policy: str, seed: int) -> LiveRun:
    run, lock = LiveRun(policy), threading.Lock()
    engine = EngineConfig(model="demo", dtype=DType.BFLOAT16, kv_memory="512MiB", max_model_len=2048)
    config = ClusterConfig(
        prefill=2,
        decode=2,
        engine=engine,
        grpc_port=0,
        http_port=0,
        policy=policy,
        max_local_prefill_tokens=0,
    )
    with Cluster(config) as cluster, Client(cluster.grpc_addresses) as client:

        def talk(conversation: Conversation) -> None:
            while conversation.turns_left:
                served, answer = _one_turn(client, conversation, f"{conversation.number}-{conversation.turns_left}")
                conversation.take_answer(answer)
                with lock:
                    run.served.append(served)
                time.sleep(THINK_S)

        with ThreadPoolExecutor(NUM_AT_ONCE) as work:
            list(work.map(talk, _workload(seed)))
    return run


def _workload(seed: int) -> list[Conversation]:
    return conversations(
        count=NUM_CONVERSATIONS,
        num_turns=NUM_TURNS,
        system_tokens=SYSTEM_TOKENS,
        vocab_size=VOCAB_SIZE,
        seed=seed,
    )


def _one_turn(client: Client, conversation: Conversation, request_id: str) -> tuple[Served, tuple[int, ...]]:
    prompt = conversation.next_prompt(TURN_TOKENS, VOCAB_SIZE)
    answer = client.generate(prompt, max_tokens=ANSWER_TOKENS, temperature=0.0, ignore_eos=True, request_id=request_id)
    plan = client.explain(request_id).plans[0]
    served = Served(
        prompt_tokens=len(prompt),
        expected_tokens=plan.prefill[0].cached_tokens,
        cached_tokens=answer.usage.cached_tokens,
        ttft_s=answer.timings.ttft_s,
        prefill_worker=answer.route.prefill_worker or "",
    )
    return served, answer.token_ids
