"""After any sequence of events, the index claims nothing for longer than its bound that a live worker does not hold."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from redis import Redis

from common.index.client import IndexClient
from common.index.points import IndexSpace, Tier, WorkerRef
from common.index.publisher import IndexPublisher
from common.index.server import EmbeddedIndexConfig, EmbeddedIndexServer
from common.kv.block_key import BlockKey
from common.kv.cache_event import CacheEvent, CacheEventKind
from tests.support.index_truth import CLAIM_BOUND_S, NUM_KEYS, IndexTruth, MakePublisher

names = st.sampled_from("ab")
choices = st.sets(st.integers(0, NUM_KEYS - 1), min_size=1, max_size=NUM_KEYS)


class IndexMachine(RuleBasedStateMachine):
    """Two workers with all that may befall them, and one router that asks after each step."""

    def __init__(self, make: MakePublisher = IndexPublisher) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._server = EmbeddedIndexServer()
        self._server.start()
        self._truth = IndexTruth(self._server.url, make=make)
        self._num_server_restarts = 0
        self._run(self._truth.start())

    @rule(name=names, chosen=choices)
    def store(self, name: str, chosen: set[int]) -> None:
        self._truth.store(name, self._keys(chosen))

    @rule(name=names, chosen=choices)
    def evict(self, name: str, chosen: set[int]) -> None:
        self._truth.evict(name, self._keys(chosen))

    @rule(name=names)
    def clear(self, name: str) -> None:
        self._truth.clear(name)

    @rule(name=names, clean=st.booleans())
    def restart(self, name: str, clean: bool) -> None:
        self._run(self._truth.restart(name, clean=clean))

    @rule(chosen=choices)
    def write_late(self, chosen: set[int]) -> None:
        self._run(self._truth.write_late(self._keys(chosen)))

    @rule(name=names, chosen=choices, life_s=st.floats(0.01, 0.3))
    def speculate(self, name: str, chosen: set[int], life_s: float) -> None:
        self._run(self._truth.speculate(name, self._keys(chosen), life_s))

    @rule()
    def flush(self) -> None:
        with Redis.from_url(self._server.url) as redis:
            redis.flushall()
        self._truth.server_lost_everything()

    @precondition(lambda self: self._num_server_restarts == 0)
    @rule()
    def restart_server(self) -> None:
        self._num_server_restarts += 1
        port = int(self._server.url.rsplit(":", 1)[1])
        self._server.stop()
        self._server = EmbeddedIndexServer(EmbeddedIndexConfig(port=port))
        self._server.start()
        self._truth.server_lost_everything()

    @rule(seconds=st.floats(0.0, 0.3))
    def wait(self, seconds: float) -> None:
        self._run(asyncio.sleep(seconds))

    @rule()
    def wait_for_the_bound(self) -> None:
        self._run(asyncio.sleep(CLAIM_BOUND_S))

    @invariant()
    def nothing_false_is_claimed(self) -> None:
        self._run(self._truth.check())

    def teardown(self) -> None:
        try:
            self._run(self._truth.check_in_the_end())
        finally:
            self._run(self._truth.stop())
            self._server.stop()
            self._loop.close()

    def _keys(self, chosen: Iterable[int]) -> list[BlockKey]:
        return [self._truth.keys[index] for index in sorted(chosen)]

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._loop.run_until_complete(work)


def test_nothing_false_is_claimed_for_longer_than_the_bound() -> None:
    run_state_machine_as_test(
        IndexMachine,
        settings=settings(
            max_examples=6,
            stateful_step_count=30,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


class ForgetfulPublisher(IndexPublisher):
    """A broken one, to show that the truth would come out."""

    def publish(self, events: Iterable[CacheEvent], tier: Tier = Tier.DEVICE) -> None:
        super().publish([event for event in events if event.kind is not CacheEventKind.EVICTED], tier)


@contextmanager
def running(make: MakePublisher = IndexPublisher) -> Iterator[IndexMachine]:
    """Without the checks in the end."""
    machine = IndexMachine(make)
    try:
        yield machine
    finally:
        machine._run(machine._truth.stop())
        machine._server.stop()
        machine._loop.close()


def test_a_publisher_that_forgets_evictions_is_found_out() -> None:
    with running(ForgetfulPublisher) as machine:
        machine.store("a", {1, 2})
        machine.evict("a", {1})
        machine.nothing_false_is_claimed()
        machine.wait_for_the_bound()
        machine.wait(0.1)
        with pytest.raises(AssertionError, match="is claimed, which let go"):
            machine.nothing_false_is_claimed()


def test_an_earlier_life_that_is_not_fenced_is_found_out() -> None:
    def make(client: IndexClient, space: IndexSpace, worker: WorkerRef) -> IndexPublisher:
        return IndexPublisher(client, space, WorkerRef(worker.worker_id, 1))  # nobody can tell its lives apart

    with running(make) as machine:
        machine.store("a", {1})
        machine.restart("a", clean=False)
        machine.wait_for_the_bound()
        machine.write_late({1})
        machine.wait(0.1)
        with pytest.raises(AssertionError, match="an earlier life"):
            machine.store("a", {1})
            machine.wait(0.1)
            machine.nothing_false_is_claimed()
