"""One cluster with the tiny model, shared by the system tests that leave it whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slipstream.launcher import Cluster
from tests.support.small_cluster import WATCHED_PROGRAM, small_cluster_config
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
