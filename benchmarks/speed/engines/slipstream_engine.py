"""This engine in process: the class that workers drive, with both cores."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from itertools import count

import torch

from benchmarks.speed.engines.stepped import run_stepped
from benchmarks.speed.request import Answer, Request
from common.config import DType, EngineConfig
from common.engine.build import BuiltEngine, build_engine
from common.heap import freeze_loaded
from common.request import Leg, RequestId, SamplingParams
from common.worker.malloc import keep_large_buffers
from common.worker.warm_up import warm_up

DTYPE_VARIABLE = "SPEED_DTYPE"
KV_MEMORY = "2GiB"


class SlipstreamEngine:
    """Not for threads."""

    def __init__(self, built: BuiltEngine) -> None:
        self._engine = built.engine
        self._ids = count()
        self._first_id = 0
        self.version = f"{version('slipstream')}, {built.backend}"

    def run(self, requests: Sequence[Request], concurrency: int | None) -> list[Answer]:
        self._first_id = next(self._ids)
        answers = run_stepped(self, requests, concurrency)
        self._engine.drain_cache_events()
        return answers

    def submit(self, number: int, request: Request) -> None:
        sampling = SamplingParams(temperature=0.0, ignore_eos=True, max_tokens=request.max_tokens, seed=0)
        self._engine.submit(
            Leg(
                request_id=RequestId(f"{self._first_id} {number}"),
                attempt=1,
                choice_indices=(0,),
                prompt_token_ids=request.token_ids,
                sampling=sampling,
            )
        )

    def step(self) -> Iterable[tuple[int, int]]:
        result = self._engine.step()
        if result.ends:
            raise RuntimeError(f"a request ended without all its tokens: {result.ends[0]}")
        return [(int(one.request_id.rpartition(" ")[2]), len(one.token_ids)) for one in result.tokens]


def load(model: str, num_threads: int) -> SlipstreamEngine:
    keep_large_buffers()
    torch.set_num_threads(num_threads)
    dtype = DType(os.environ.get(DTYPE_VARIABLE, DType.BFLOAT16))
    config = EngineConfig(model=model, dtype=dtype, kv_memory=KV_MEMORY, num_threads=num_threads)
    built = build_engine(config, hand_back_when_preempted=False)
    warm_up(built.engine)
    freeze_loaded()
    return SlipstreamEngine(built)
