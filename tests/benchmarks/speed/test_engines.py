"""The engines' processes, on a tiny model: every token comes, whatever the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from benchmarks.speed.contender import ContenderError
from benchmarks.speed.contenders import make_contender
from benchmarks.speed.engine_process import EngineProcess, EngineSpec
from benchmarks.speed.engines.stepped import run_stepped
from benchmarks.speed.model_size import model_size
from benchmarks.speed.prompts import Prompts
from benchmarks.speed.request import Request
from common.config import DType
from tests.support.speed import make_request


class OneTokenEachStep:
    """Knows how many requests it had at most."""

    def __init__(self) -> None:
        self.left: dict[int, int] = {}
        self.most = 0

    def submit(self, number: int, request: Request) -> None:
        self.left[number] = request.max_tokens
        self.most = max(self.most, len(self.left))

    def step(self) -> Iterable[tuple[int, int]]:
        stepped = [(number, 1) for number in self.left]
        self.left = {number: left - 1 for number, left in self.left.items() if left > 1}
        return stepped


@pytest.mark.parametrize(("concurrency", "most"), [(None, 5), (2, 2)])
def test_a_stepped_engine_gets_its_requests_at_once_or_some_at_a_time(concurrency: int | None, most: int) -> None:
    engine = OneTokenEachStep()
    answers = run_stepped(engine, [make_request(max_tokens=3)] * 5, concurrency)
    assert [len(one.times_s) for one in answers] == [3] * 5 and engine.most == most


def test_a_step_is_timed_when_it_has_been_computed() -> None:
    class Lazy(OneTokenEachStep):
        def step(self) -> Iterator[tuple[int, int]]:
            time.sleep(0.01)
            yield from super().step()

    (answer,) = run_stepped(Lazy(), [make_request(max_tokens=1)], None)
    assert answer.ttft_s >= 0.01


@pytest.mark.parametrize("name", ["ours", "transformers"])
def test_an_engine_in_a_process_of_its_own_answers_with_every_token(name: str, tiny_model: Path) -> None:
    with asyncio.Runner() as runner:
        engine = make_contender(name, tiny_model, runner=runner, num_threads=1, make_timeout_s=1, dtype=DType.FLOAT32)
    requests = Prompts(tiny_model).requests(3, 24, 5, seed=1, shared_tokens=16)
    try:
        engine.start()
        answers = engine.run(requests, None)
    finally:
        engine.close()
    assert [len(one.times_s) for one in answers] == [5, 5, 5]
    assert all(one.sent_s <= one.times_s[0] and list(one.times_s) == sorted(one.times_s) for one in answers)


def test_an_engine_that_ends_says_its_last_words(tiny_model: Path) -> None:
    engine = EngineProcess(EngineSpec(name="none", module="no_such"), tiny_model, 1, 1)
    with pytest.raises(ContenderError, match="no_such_engine"):
        engine.start()
    engine.close()


def test_prompts_are_the_text_of_their_tokens_and_begin_apart(tiny_model: Path) -> None:
    prompts = Prompts(tiny_model)
    requests = prompts.requests(8, 100, 1, seed=3, shared_tokens=60)
    assert {len(one.token_ids) for one in requests} == {100}
    assert len({one.token_ids[:60] for one in requests}) == 1
    assert len({one.token_ids[60:76] for one in requests}) == 8
    assert len({one.token_ids[:16] for one in prompts.requests(8, 32, 1, seed=3)}) == 8
    assert prompts.requests(1, 32, 1, seed=3) == prompts.requests(1, 32, 1, seed=3)


def test_model_size_counts_what_a_step_reads(tiny_model: Path) -> None:
    size = model_size(tiny_model)
    assert size.kv_bytes_per_token == 2 * 2 * 2 * 2 * 8
    assert size.weight_bytes == 2 * (size.num_linear_parameters + 49_152 * 32)
