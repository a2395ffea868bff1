"""A router is lost in mid-answer: the client goes on at another one, as if nothing had happened."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from common.errors import UnavailableError
from common.request import TokenLogprob
from slipstream.client import Client
from slipstream.generation import Generation, GenerationBuilder
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config

PROMPT = list(range(700, 900))
SILENCE_S = 3.0
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "seeded": {"seed": 7},
    # Most tokens are parts of characters, so text is held back all the time.
    "hot": {"seed": 11, "temperature": 5.0},
    "choices": {"seed": 8, "n": 3},
    "logprobs": {"seed": 9, "logprobs": 3, "prompt_logprobs": 2, "return_prompt_token_ids": True},
    "penalties": {"seed": 10, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5},
}
EVERYWHERE: dict[str, Any] = {"max_tokens": 250, "ignore_eos": True}


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
    wait_until_it_answers(cluster.grpc_addresses[0])  # whatever befell it before
    began = {name: threading.Event() for name in CASES}
    lost = threading.Event()

    def ask(name: str) -> tuple[Generation, float]:
        """The answer, and the longest silence after the loss."""
        # A client of its own, so that all begin at the first router.
        with Client(cluster.grpc_addresses, silence_s=SILENCE_S) as client:
            builder, silence_s, heard_s = GenerationBuilder(), 0.0, time.monotonic()
            for delta in client.stream(PROMPT, **EVERYWHERE, **CASES[name]):
                began[name].set()
                if lost.is_set():
                    silence_s = max(silence_s, time.monotonic() - heard_s)
                heard_s = time.monotonic()
                builder.add(delta)
            return builder.build(), silence_s

    with ThreadPoolExecutor(len(CASES)) as work:
        asked = {name: work.submit(ask, name) for name in CASES}
        for event in began.values():
            assert event.wait(60)
        lost.set()
        cluster.kill("router-0", signum)
        answers = {name: future.result(timeout=300)[0] for name, future in asked.items()}
        print(f"longest silence: {max(future.result()[1] for future in asked.values()):.2f} s")
    for name, answer in answers.items():
        assert_same(answer, expected[name], name)
        assert answer.num_resumes == 1, name
    if signum == signal.SIGSTOP:
        cluster.kill("router-0", signal.SIGCONT)  # it finds its callers gone
    assert_nothing_left(cluster)


def wait_until_it_answers(address: str) -> None:
    """A router that was frozen finds its workers gone, and takes a moment to have them back."""
    deadline_s = time.monotonic() + 30
    with Client(address) as client:
        while True:
            try:
                client.generate(PROMPT, max_tokens=1)
                return
            except UnavailableError:
                assert time.monotonic() < deadline_s
                time.sleep(0.2)


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
