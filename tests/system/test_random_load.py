"""After 500 random requests with random cancels nothing is left anywhere, and every whole answer is right."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from common.config import Role
from common.errors import DeadlineExceededError, OverloadedError
from common.request import FinishReason
from router.generation import RouteHint
from slipstream.async_client import AsyncClient
from slipstream.generation import GenerateOptions, GenerationBuilder
from slipstream.launcher import Cluster
from tests.support.small_cluster import assert_nothing_left, small_cluster_config, small_engine, worker_load

NUM_REQUESTS = 500
NUM_AT_ONCE = 24
SEED = 20_251
VOCAB_SIZE = 49_152
# First most answers are short, and decode learns to grant credits for as much; then they get long, and it runs out
# of blocks.
NUM_DECODE_BLOCKS = 80
LONG_SHARES = (0.1, 0.6)
SHORT_ANSWERS = (1, 2, 4, 8)
LONG_ANSWERS = (100, 180)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomRequest:
    """`cancel_after_tokens` or `cancel_after_s`: when the caller goes away; both None: never."""

    prompt: tuple[int, ...]
    options: GenerateOptions
    cancel_after_tokens: int | None = None
    cancel_after_s: float | None = None


@dataclass(slots=True)
class Outcomes:
    """Owned by the event loop."""

    count: Counter[str] = field(default_factory=Counter)
    # Seeded and greedy answers depend on prompt and options alone.
    answers: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)


@pytest.fixture(scope="module")
def cluster(tiny_model: Path) -> Iterator[Cluster]:
    config = small_cluster_config(
        tiny_model,
        prefill=2,
        decode=2,
        prefill_engine=small_engine(tiny_model, num_blocks=400, max_model_len=512, max_num_batched_tokens=256),
        decode_engine=small_engine(tiny_model, num_blocks=NUM_DECODE_BLOCKS, max_model_len=512),
    )
    with Cluster(config) as cluster:
        yield cluster


def make_request(source: random.Random, prefixes: list[tuple[int, ...]], long_share: float) -> RandomRequest:
    tail = tuple(source.randrange(VOCAB_SIZE) for _ in range(source.randint(1, 40)))
    prompt = source.choice(prefixes)[: source.choice((0, 16, 64, 100, 256))] + tail
    max_tokens = source.randint(*LONG_ANSWERS) if source.random() < long_share else source.choice(SHORT_ANSWERS)
    options: GenerateOptions = {
        "max_tokens": max_tokens,
        "ignore_eos": source.random() < 0.8,
        "temperature": source.choice((0.0, 0.0, 1.0)),
        "seed": source.randrange(2**63),
        "n": source.choice((1, 1, 1, 1, 2, 3)),
        "priority": source.choice((0, 0, 0, -1, 2)),
        "cache_salt": source.choice(("", "", "other")),
    }
    if source.random() < 0.1:
        options["stop_token_ids"] = [source.randrange(VOCAB_SIZE) for _ in range(8)]
    if source.random() < 0.1:
        options["route"] = RouteHint(decode_only=True)
    if source.random() < 0.05:
        options["prompt_logprobs"] = 1
    if source.random() < 0.05:
        options["deadline_ms"] = source.randint(1, 200)
    fate = source.random()
    return RandomRequest(
        prompt=prompt,
        options=options,
        cancel_after_tokens=source.randint(1, max_tokens) if fate < 0.2 else None,
        cancel_after_s=source.random() * 0.3 if fate > 0.8 else None,
    )


def make_requests(source: random.Random, prefixes: list[tuple[int, ...]]) -> list[RandomRequest]:
    requests = [
        make_request(source, prefixes, long_share)
        for long_share in LONG_SHARES
        for _ in range(NUM_REQUESTS * 9 // 10 // len(LONG_SHARES))
    ]
    # Some come twice, and must be answered alike: elsewhere, in another batch, with a cached prefix.
    return requests + source.choices(requests, k=NUM_REQUESTS - len(requests))


async def run_one(client: AsyncClient, request: RandomRequest, outcomes: Outcomes) -> None:
    try:
        async with asyncio.timeout(request.cancel_after_s):
            await follow(client, request, outcomes)
    except TimeoutError:
        outcomes.count["cancelled"] += 1
    except (DeadlineExceededError, OverloadedError):
        # Missed, or foreseen to be.
        if "deadline_ms" not in request.options:
            raise
        outcomes.count["deadline"] += 1


async def follow(client: AsyncClient, request: RandomRequest, outcomes: Outcomes) -> None:
    builder = GenerationBuilder()
    num_tokens = 0
    stream = client.stream(request.prompt, **request.options)
    try:
        async for delta in stream:
            builder.add(delta)
            num_tokens += sum(len(choice.token_ids) for choice in delta.choices)
            if request.cancel_after_tokens is not None and num_tokens >= request.cancel_after_tokens:
                outcomes.count["cancelled"] += 1
                return
    finally:
        await stream.aclose()  # type: ignore[attr-defined]
    answer = builder.build()
    outcomes.count["preempted"] += answer.route.preemptions
    outcomes.count["whole"] += 1
    assert len(answer.choices) == request.options["n"]
    for choice in answer.choices:
        ended_early = choice.finish_reason is FinishReason.STOP
        assert ended_early or len(choice.token_ids) == request.options["max_tokens"]
    if "prompt_logprobs" in request.options:
        assert answer.prompt_logprobs is not None and len(answer.prompt_logprobs) == len(request.prompt) - 1
    key = repr((request.prompt, {name: request.options.get(name) for name in ANSWER_OPTIONS}))
    tokens = tuple(choice.token_ids for choice in answer.choices)
    assert outcomes.answers.setdefault(key, tokens) == tokens


ANSWER_OPTIONS = ("max_tokens", "ignore_eos", "temperature", "seed", "n", "stop_token_ids")


async def run_all(addresses: list[str], requests: list[RandomRequest]) -> Outcomes:
    outcomes = Outcomes()
    room = asyncio.Semaphore(NUM_AT_ONCE)

    async def in_turn(request: RandomRequest) -> None:
        async with room:
            await run_one(client, request, outcomes)

    async with AsyncClient(addresses, timeout_s=120.0) as client, asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(in_turn(request))
    return outcomes


def test_500_random_requests_leave_nothing_behind(cluster: Cluster) -> None:
    source = random.Random(SEED)
    prefixes = [tuple(source.randrange(VOCAB_SIZE) for _ in range(256)) for _ in range(6)]
    requests = make_requests(source, prefixes)
    outcomes = asyncio.run(run_all(cluster.grpc_addresses, requests))

    assert outcomes.count["whole"] + outcomes.count["cancelled"] + outcomes.count["deadline"] == NUM_REQUESTS
    assert outcomes.count["whole"] > NUM_REQUESTS // 2
    assert outcomes.count["cancelled"] > NUM_REQUESTS // 10
    assert_nothing_left(cluster)
    decode_loads = [worker_load(worker) for worker in cluster.workers if worker.role is Role.DECODE]
    assert sum(load.num_preemptions for load in decode_loads) > 0, "blocks never ran out"
    assert sum(load.num_swap_outs for load in decode_loads) > 0, "nobody waited on the host"
    assert sum(load.received_blocks for load in decode_loads) > 0
    print(outcomes.count, [load.num_preemptions for load in decode_loads])
