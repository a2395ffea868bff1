"""A caller who goes away frees every block, on both sides."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from common.config import Role
from common.errors import DeadlineExceededError
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, worker_load, worker_of_role

PROMPT = list(range(100, 400))
MANY_TOKENS = 1500


@pytest.fixture
def client(small_cluster: Cluster) -> Client:
    return Client(small_cluster.grpc_addresses)


def wait_for(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.01)


@pytest.mark.parametrize("num_choices", [1, 3])
def test_closing_the_stream_frees_both_sides(small_cluster: Cluster, client: Client, num_choices: int) -> None:
    stream = client.stream(PROMPT, max_tokens=MANY_TOKENS, ignore_eos=True, n=num_choices)
    for _ in range(3):
        next(stream)
    assert worker_load(worker_of_role(small_cluster, Role.DECODE)).num_running == num_choices
    stream.close()  # type: ignore[attr-defined]
    assert_nothing_left(small_cluster, timeout_s=5.0)
    client.close()


def test_a_cancel_reaches_decode_within_a_moment(small_cluster: Cluster, client: Client) -> None:
    worker = worker_of_role(small_cluster, Role.DECODE)
    stream = client.stream(PROMPT, max_tokens=MANY_TOKENS, ignore_eos=True)
    next(stream)
    wait_for(lambda: worker_load(worker).num_running == 1)
    before = worker_load(worker).num_generated_tokens
    stream.close()  # type: ignore[attr-defined]
    wait_for(lambda: worker_load(worker).num_running == 0, timeout_s=2.0)
    assert worker_load(worker).num_generated_tokens - before < MANY_TOKENS - 100
    client.close()


def test_a_deadline_frees_both_sides(small_cluster: Cluster, client: Client) -> None:
    with pytest.raises(DeadlineExceededError, match="deadline"):
        # With `ignore_eos` it would be refused at once, since it is known how many tokens have to come.
        client.generate(PROMPT, max_tokens=MANY_TOKENS, deadline_ms=400)
    assert_nothing_left(small_cluster, timeout_s=5.0)
    client.close()


def test_a_stop_string_ends_decode_too(small_cluster: Cluster, client: Client) -> None:
    whole = client.generate(PROMPT, max_tokens=40, ignore_eos=True, temperature=0.0)
    pieces = (whole.text[start : start + 3] for start in range(len(whole.text) // 2, len(whole.text) - 3))
    stop = next(piece for piece in pieces if piece.isascii())
    answer = client.generate(PROMPT, max_tokens=MANY_TOKENS, ignore_eos=True, temperature=0.0, stop=[stop])
    assert answer.choices[0].stop_string == stop
    assert answer.text == whole.text[: whole.text.index(stop)]
    assert_nothing_left(small_cluster, timeout_s=5.0)
    client.close()


@pytest.mark.parametrize("num_choices", [1, 2])
@pytest.mark.parametrize("num_tokens", [48, 301])
def test_an_answer_that_ends_with_its_first_token_ends(
    small_cluster: Cluster, client: Client, num_tokens: int, num_choices: int
) -> None:
    """Also where decode holds the whole prompt, and nothing is left to send."""
    prompt = [300 + num_tokens + index % 100 for index in range(num_tokens)]
    client.generate(prompt, max_tokens=20, ignore_eos=True, n=num_choices)
    for _ in range(3):
        answer = client.generate(
            prompt,
            max_tokens=20,
            n=num_choices,
            logit_bias={90: 100.0},
            stop_token_ids=[90],
            deadline_ms=10_000,
        )
        assert {choice.finish_reason for choice in answer.choices} == {"stop"}
        assert answer.usage.generated_tokens == num_choices
    assert_nothing_left(small_cluster, timeout_s=5.0)
    client.close()
