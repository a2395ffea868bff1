"""A router is lost in mid-answer: the client goes on at another one, as if nothing had happened."""

from __future__ import annotations

import dataclasses
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from common.request import TokenLogprob
from slipstream.client import Client
from slipstream.generation import Generation, GenerationBuilder
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config

PROMPT = list(range(700, 900))
SILENCE_S = 1.0
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"seed": 7},
    # Most tokens are parts of characters, so text is held back all the time.
    "hot": {"seed": 11, "temperature": 5.0},
    "choices": {"seed": 8, "n": 3},
    "logprobs": {"seed": 9, "logprobs": 3, "prompt_logprobs": 2, "return_prompt_token_ids": True},
    "penalties": {"seed": 10, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5},
}
EVERYWHERE: dict[str, Any] = {"max_tokens": 150, "ignore_eos": True}


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    with Cluster(small_cluster_config(tiny_model, routers=2)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def expected(cluster: Cluster) -> dict[str, Generation]:
    with Client(cluster.grpc_addresses[1]) as client, ThreadPoolExecutor(len(CASES)) as work:
        answers = work.map(lambda options: client.generate(PROMPT, **EVERYWHERE, **options), CASES.values())
        return dict(zip(CASES, answers, strict=True))


# Killed last: it does not come back.
@pytest.mark.parametrize("signum", [signal.SIGSTOP, signal.SIGKILL], ids=["frozen", "killed"])
def test_an_answer_goes_on_token_for_token(
    cluster: Cluster, expected: dict[str, Generation], signum: signal.Signals
) -> None:
    with ExitStack() as stack:
        # A client of its own for each, so that all begin at the first router.
        clients = [stack.enter_context(Client(cluster.grpc_addresses, silence_s=SILENCE_S)) for _ in CASES]
        streams = {
            name: client.stream(PROMPT, **EVERYWHERE, **options)
            for client, (name, options) in zip(clients, CASES.items(), strict=True)
        }
        builders = {name: GenerationBuilder() for name in CASES}
        for name, stream in streams.items():
            builders[name].add(next(stream))
        cluster.kill("router-0", signum)
        lost_s = time.monotonic()
        for name, stream in streams.items():
            for delta in stream:
                builders[name].add(delta)
                if delta.num_resumes and lost_s:
                    print(f"went on after {time.monotonic() - lost_s:.2f} s")
                    lost_s = 0.0
        answers: dict[str, Generation] = {name: builder.build() for name, builder in builders.items()}
    for name, answer in answers.items():
        assert_same(answer, expected[name], name)
        assert answer.num_resumes == 1, name
    if signum == signal.SIGSTOP:
        cluster.kill("router-0", signal.SIGCONT)  # it finds its callers gone
    assert_nothing_left(cluster)


def assert_same(answer: Generation, expected: Generation, name: str) -> None:
    """But for the last bits of log probabilities: a token that is computed with the prompt sums in another order."""
    assert answer.prompt_token_ids == expected.prompt_token_ids, name
    assert answer.usage.generated_tokens == expected.usage.generated_tokens, name
    for choice, other in zip(answer.choices, expected.choices, strict=True):
        assert dataclasses.replace(choice, logprobs=()) == dataclasses.replace(other, logprobs=()), name
    for got, wanted in zip(_logprobs(answer), _logprobs(expected), strict=True):
        assert got.token_id == wanted.token_id, name
        assert got.rank == pytest.approx(wanted.rank, rel=0.01), name
        assert got.logprob == pytest.approx(wanted.logprob, abs=1e-3), name


def _logprobs(answer: Generation) -> list[TokenLogprob]:
    return [*(answer.prompt_logprobs or ()), *(one for choice in answer.choices for one in choice.logprobs)]
