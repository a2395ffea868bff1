"""A running cluster under test: asks its router for tokens, and its workers for their counters.

Knows addresses and RPCs; what the tokens and counters must be is said in `case` and `path`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import grpc

from benchmarks.exactness.counters import Counters, sum_counters
from benchmarks.exactness.reference import Reference
from common.config import Role
from common.request import TokenLogprob
from protos import admin_pb2, admin_pb2_grpc, worker_pb2
from router.generation import RouteHint, RouteTaken, Usage
from slipstream.async_client import AsyncClient
from slipstream.generation import GenerateOptions
from slipstream.launcher import Cluster

POLL_INTERVAL_S = 0.01
RPC_TIMEOUT_S = 30.0
REQUEST_TIMEOUT_S = 1800.0
SEEDED_SAMPLING: GenerateOptions = {"temperature": 1.0}
PENALISED_SAMPLING: GenerateOptions = {
    "repetition_penalty": 1.1,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.2,
    "logprobs": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. `as_source` sends the text or chat, so that the router tokenises; else the token ids."""

    reference: Reference
    num_new_tokens: int
    num_prompt_tokens: int | None = None  # a shorter prompt: its first tokens; None: all
    as_source: bool = False
    cache_salt: str = ""
    num_choices: int = 1
    seed: int | None = None  # None: greedy
    penalised: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The answer to one Ask: each choice's tokens, and what was told about how they came about."""

    ask: Ask
    choices: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[TokenLogprob, ...], ...] = ()  # of each choice's tokens, when asked for
    prompt_token_ids: tuple[int, ...] | None  # as the router saw them
    usage: Usage
    route: RouteTaken


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a batch of requests brought: answers in order, counters of each side, most requests seen in a batch."""

    served: tuple[Served, ...]
    prefill: Counters
    decode: Counters
    peak_running: int


class Fleet:
    """Owned by one thread. The workers of role both count as decode workers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.split = any(worker.role is Role.PREFILL for worker in cluster.workers)
        self._channels = {worker.id: grpc.insecure_channel(worker.address) for worker in cluster.workers}
        self._admins = {worker_id: admin_pb2_grpc.AdminStub(channel) for worker_id, channel in self._channels.items()}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()

    def worker_ids(self, role: Role) -> list[str]:
        """Prefill workers, or those that decode."""
        return [worker.id for worker in self.cluster.workers if (worker.role is Role.PREFILL) is (role is Role.PREFILL)]

    def load(self, worker_id: str) -> worker_pb2.LoadReport:
        response = self._admins[worker_id].Status(admin_pb2.StatusRequest(), timeout=RPC_TIMEOUT_S)
        (worker,) = response.workers
        load: worker_pb2.LoadReport = worker.load
        return load

    def counters(self, role: Role) -> Counters:
        return sum_counters(self.load(worker_id) for worker_id in self.worker_ids(role))

    def reset_prefix_cache(self, *roles: Role) -> None:
        """Each worker forgets what it cached, asked one by one."""
        for role in roles:
            for worker_id in self.worker_ids(role):
                self._admins[worker_id].ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest(), timeout=RPC_TIMEOUT_S)

    def check_integrity(self, worker_id: str) -> admin_pb2.CheckIntegrityResponse:
        """Raises RpcError INTERNAL when an invariant is broken."""
        request = admin_pb2.CheckIntegrityRequest()
        response: admin_pb2.CheckIntegrityResponse
        response = self._admins[worker_id].CheckIntegrity(request, timeout=RPC_TIMEOUT_S)
        return response

    def serve(self, asks: Sequence[Ask], num_at_once: int) -> Traffic:
        """Answers to all, `num_at_once` requests at a time. Raises what the client raises."""
        return asyncio.run(self._serve(asks, num_at_once))

    async def _serve(self, asks: Sequence[Ask], num_at_once: int) -> Traffic:
        before = {role: self.counters(role) for role in (Role.PREFILL, Role.DECODE)}
        room = asyncio.Semaphore(num_at_once)
        async with (
            AsyncClient(self.cluster.grpc_addresses, timeout_s=REQUEST_TIMEOUT_S) as client,
            self._watch() as peak,
            asyncio.TaskGroup() as group,
        ):
            tasks = [group.create_task(self._ask(client, ask, room)) for ask in asks]
        await asyncio.to_thread(self._wait_idle)
        return Traffic(
            served=tuple(task.result() for task in tasks),
            prefill=self.counters(Role.PREFILL) - before[Role.PREFILL],
            decode=self.counters(Role.DECODE) - before[Role.DECODE],
            peak_running=max(peak, default=0),
        )

    async def _ask(self, client: AsyncClient, ask: Ask, room: asyncio.Semaphore) -> Served:
        source = ask.reference.source
        whole = ask.as_source and source.cut is None and ask.num_prompt_tokens is None
        prompt: str | Sequence[int] | None = ask.reference.prompt_token_ids[: ask.num_prompt_tokens]
        if whole:
            prompt = None if source.messages else source.text
        async with room:
            options: GenerateOptions = {
                "max_tokens": ask.num_new_tokens,
                "ignore_eos": True,
                "temperature": 0.0,
                "n": ask.num_choices,
                "cache_salt": ask.cache_salt,
                "return_prompt_token_ids": True,
            }
            if ask.seed is not None:
                options |= SEEDED_SAMPLING | {"seed": ask.seed}
            if ask.penalised:
                options |= PENALISED_SAMPLING
            if whole and source.messages:
                options["messages"] = source.messages
            if self.split:
                options["route"] = RouteHint(prefill_worker=self.worker_ids(Role.PREFILL)[0])
            answer = await client.generate(prompt, **options)
        return Served(
            ask=ask,
            choices=tuple(tuple(choice.token_ids) for choice in answer.choices),
            logprobs=tuple(tuple(choice.logprobs) for choice in answer.choices),
            prompt_token_ids=answer.prompt_token_ids,
            usage=answer.usage,
            route=answer.route,
        )

    @contextlib.asynccontextmanager
    async def _watch(self) -> AsyncIterator[list[int]]:
        """Collects the numbers of running requests of the decoding workers."""
        seen: list[int] = []

        async def poll() -> None:
            while True:
                loads = await asyncio.gather(
                    *(asyncio.to_thread(self.load, one) for one in self.worker_ids(Role.DECODE))
                )
                seen.append(sum(load.num_running for load in loads))
                await asyncio.sleep(POLL_INTERVAL_S)

        task = asyncio.create_task(poll())
        try:
            yield seen
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _wait_idle(self) -> None:
        """Reservations and leases end a moment after the last token."""
        deadline_s = time.monotonic() + RPC_TIMEOUT_S
        while busy := self._busy():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"not idle {RPC_TIMEOUT_S:g} s after the last token: {busy}")
            time.sleep(POLL_INTERVAL_S)

    def _busy(self) -> str:
        """The workers that still hold something, and what; empty: none."""
        loads = {worker.id: self.load(worker.id) for worker in self.cluster.workers}
        return "; ".join(
            f"{worker_id} has {load.num_running} running, {load.num_waiting} waiting, {load.num_swapped} swapped, "
            f"{load.num_reservations} reserved"
            for worker_id, load in loads.items()
            if load.num_running or load.num_waiting or load.num_swapped or load.num_reservations
        )
