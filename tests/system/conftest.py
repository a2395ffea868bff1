"""One cluster with the tiny model, shared by the system tests that leave it whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from common.config import Role
from slipstream.launcher import Cluster
from tests.support.hostile_fleet import Fleet, Honest
from tests.support.small_cluster import WATCHED_PROGRAM, assert_nothing_left, small_cluster_config, worker_of_role
from tests.support.watched_program import FOLDER_VARIABLE


@pytest.fixture(scope="session")
def modules_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where every process of `small_cluster` writes what it has imported."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="session")
def small_cluster(tiny_model: Path, modules_folder: Path) -> Iterator[Cluster]:
    """A prefill worker, a decode worker and a router. Tests leave its processes running and its pools empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(modules_folder))
        cluster = Cluster(
            # Tests say where prompts are computed.
            small_cluster_config(tiny_model, max_local_prefill_tokens=0),
            program=WATCHED_PROGRAM,
        )
        cluster.start()
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def fleet(small_cluster: Cluster) -> Iterator[Fleet]:
    """The shared cluster, and channels to its processes to be hostile over."""
    addresses = {
        "router": small_cluster.grpc_addresses[0],
        "prefill": worker_of_role(small_cluster, Role.PREFILL).address,
        "decode": worker_of_role(small_cluster, Role.DECODE).address,
    }
    channels = {name: grpc.insecure_channel(address) for name, address in addresses.items()}
    yield Fleet(small_cluster, channels)
    for channel in channels.values():
        channel.close()


@pytest.fixture
def honest(fleet: Fleet) -> Iterator[Honest]:
    honest = Honest(fleet)
    yield honest
    honest.stop()


@pytest.fixture
def unharmed(fleet: Fleet) -> Iterator[None]:
    """Before and after: the same answer, from the same processes, which hold nothing and were surprised by nothing."""
    before, logged = fleet.answer(), fleet.tracebacks()
    yield
    fleet.undo_drains()
    assert fleet.cluster.newly_ended() == []
    assert fleet.tracebacks() == logged
    assert_nothing_left(fleet.cluster)
    assert fleet.answer() == before
