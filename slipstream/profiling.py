"""Measures a worker on this machine: what its steps take, and how much KV it holds. For the simulator."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from common.cost import StepTimes
from common.errors import UnavailableError
from common.net.cost_codec import decode_step_times
from protos import admin_pb2, admin_pb2_grpc, worker_pb2, worker_pb2_grpc
from slipstream.client import Client
from slipstream.connection import CHANNEL_OPTIONS
from slipstream.generation import Generation

RPC_TIMEOUT_S = 10.0
PROMPT_LENGTHS = (16, 48, 128, 256, 512, 1024, 2048)
BATCHES = (1, 4, 16)
DECODE_CONTEXTS = (32, 512, 1536)
DECODE_TOKENS = 16
# Shares of a prompt that are cached when it is computed: attention's part shows in them.
CACHED_SHARES = (0.0, 0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWorker:
    """`prefill_error` is the median of |predicted / measured - 1| over prompts that were measured after the fit."""

    step_times: StepTimes
    backend: str
    kv_capacity_tokens: int
    kv_bytes_per_token: float
    chunk_tokens: int
    max_num_seqs: int
    prefill_error: float


class WorkerProfiler:
    """Loads one worker of role both through its router, and reads the worker's own fit. Blocking."""

    def __init__(self, client: Client, worker_address: str, on_progress: Callable[[str], None]) -> None:
        self._client = client
        self._channel = grpc.insecure_channel(worker_address, CHANNEL_OPTIONS)
        self._on_progress = on_progress
        self._draw = random.Random(0)
        self._registration: worker_pb2.WorkerRegistration = worker_pb2_grpc.RegistrationStub(self._channel).Describe(
            worker_pb2.DescribeRequest(), timeout=RPC_TIMEOUT_S
        )

    def measure(self, num_rounds: int) -> MeasuredWorker:
        """Raises UnavailableError when the worker tells no step times."""
        for number in range(num_rounds):
            for length in self._lengths():
                self._on_progress(f"round {number + 1} of {num_rounds}: prompts of {length} tokens")
                for share in CACHED_SHARES:
                    self._prefill(length, share)
            for batch, context in self._batches():
                self._on_progress(f"round {number + 1} of {num_rounds}: {batch} requests at {context} tokens")
                self._decode(batch, context)
        self._on_progress("checking the fit")
        times, load = self._fit()
        return MeasuredWorker(
            step_times=times,
            backend=self._registration.backend,
            kv_capacity_tokens=load.num_blocks * self._registration.layout.groups[0].block_size,
            kv_bytes_per_token=self._bytes_per_token(),
            chunk_tokens=self._registration.max_num_batched_tokens,
            max_num_seqs=load.max_num_seqs,
            prefill_error=self._prefill_error(times),
        )

    def close(self) -> None:
        self._channel.close()

    def _lengths(self) -> Iterator[int]:
        return (length for length in PROMPT_LENGTHS if length < self._registration.max_model_len)

    def _batches(self) -> Iterator[tuple[int, int]]:
        for context in DECODE_CONTEXTS:
            if context + DECODE_TOKENS < self._registration.max_model_len:
                yield from ((batch, context) for batch in BATCHES)

    def _prompt(self, length: int) -> list[int]:
        return [self._draw.randrange(self._registration.vocab_size) for _ in range(length)]

    def _prefill(self, length: int, cached_share: float) -> tuple[Generation, int]:
        """The answer to a prompt, a share of which was computed before, and how many of its tokens that left."""
        prompt = self._prompt(length)
        num_cached = int(length * cached_share)
        if num_cached:
            self._client.generate(prompt[:num_cached], max_tokens=1, temperature=0.0)
        answer = self._client.generate(prompt, max_tokens=1, temperature=0.0)
        return answer, length - answer.usage.cached_tokens

    def _decode(self, batch: int, context: int) -> None:
        # One prompt for all: its KV is computed once, and read by each request all the same.
        prompt = self._prompt(context)
        self._client.generate(prompt, max_tokens=1, temperature=0.0)
        with ThreadPoolExecutor(batch) as work:
            list(work.map(self._decode_one, [prompt] * batch))

    def _decode_one(self, prompt: list[int]) -> None:
        self._client.generate(prompt, max_tokens=DECODE_TOKENS, temperature=0.0, ignore_eos=True)

    def _fit(self) -> tuple[StepTimes, worker_pb2.LoadReport]:
        admin = admin_pb2_grpc.AdminStub(self._channel)
        status: admin_pb2.StatusResponse = admin.Status(admin_pb2.StatusRequest(), timeout=RPC_TIMEOUT_S)
        load: Any = status.workers[0].load
        times = decode_step_times(load.step_times) if load.HasField("step_times") else None
        if times is None or times.step_s <= 0:
            raise UnavailableError("the worker tells no step times: it must be of this version, and have run")
        return times, load

    def _prefill_error(self, times: StepTimes) -> float:
        errors = []
        for length in self._lengths():
            answer, num_uncached = self._prefill(length, 0.0)
            expected_s = times.prefill_s(num_uncached, length - num_uncached, self._registration.max_num_batched_tokens)
            errors.append(abs(expected_s / answer.timings.prefill_s - 1))
        return statistics.median(errors)

    def _bytes_per_token(self) -> float:
        groups = self._registration.layout.groups
        return sum(group.bytes_per_block for group in groups) / groups[0].block_size
