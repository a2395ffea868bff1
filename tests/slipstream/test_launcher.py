from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.config import EngineConfig, IndexConfig, Role
from common.errors import ConfigError, UnavailableError
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster, ClusterEvent
from tests.support import fake_service

PROGRAM = (sys.executable, fake_service.__file__)
MakeCluster = Callable[..., Cluster]


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> Any:
    def set_behaviour(**behaviours: str) -> None:
        named = {name.replace("_", "-"): behaviour for name, behaviour in behaviours.items()}
        monkeypatch.setenv("FAKE_SERVICE", json.dumps(named))

    return set_behaviour


@pytest.fixture
def cluster_of(model: Path, index_url: str) -> MakeCluster:
    """No fake uses the index; the launcher starts no server of its own when it is given one."""

    def make(*, on_event: Callable[[ClusterEvent], None] = lambda event: None, **settings: Any) -> Cluster:
        defaults = {
            "index": IndexConfig(index_url=index_url),
            "engine": EngineConfig(model=str(model)),
            "grpc_port": 0,
            "http_port": 0,
        }
        return Cluster(ClusterConfig(**{**defaults, **settings}), program=PROGRAM, on_event=on_event)

    return make


def is_gone(pid: int, within_s: float = 5.0) -> bool:
    deadline_s = time.monotonic() + within_s
    while time.monotonic() < deadline_s:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_cluster_starts_tells_and_stops(cluster_of: MakeCluster) -> None:
    events: list[ClusterEvent] = []
    with cluster_of(prefill=2, routers=2, on_event=events.append) as cluster:
        assert [(worker.id, worker.role) for worker in cluster.workers] == [
            ("prefill-0", Role.PREFILL),
            ("prefill-1", Role.PREFILL),
            ("decode-0", Role.DECODE),
        ]
        assert cluster.grpc_addresses == ["127.0.0.1:2"] * 2
        assert len(set(cluster.http_urls)) == 2
        pids = [cluster.child(name).pid for name in ("prefill-0", "prefill-1", "decode-0", "router-0", "router-1")]
        log_dir = cluster.log_dir
        assert (log_dir / "decode-0.log").read_text() == "decode-0 has begun\n"
    assert all(is_gone(pid) for pid in pids)
    assert not log_dir.exists()
    assert [event.name for event in events if event.text == "ready"] == ["router-0", "router-1"]


def test_workers_own_their_cores(cluster_of: MakeCluster) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core can't be divided")
    with cluster_of() as cluster:
        affinities = [os.sched_getaffinity(worker.pid) for worker in cluster.workers]
    assert set.union(*affinities) == cores
    assert not set.intersection(*affinities)


def test_its_own_index_server_stops_with_it(cluster_of: MakeCluster) -> None:
    others = {child.pid for child in psutil.Process().children()}
    with cluster_of(index=IndexConfig()) as cluster:
        assert cluster.index_url is not None
        assert cluster.index_url.startswith("redis://127.0.0.1:")
        assert not cluster.index_lost()
        started = [child for child in psutil.Process().children() if child.pid not in others]
        servers = [child.pid for child in started if "valkey" in " ".join(child.cmdline())]
    assert servers
    assert all(is_gone(pid) for pid in servers)


def test_a_process_that_dies_at_the_start_shows_its_log(cluster_of: MakeCluster, behave: Any) -> None:
    behave(decode_0="die")
    cluster = cluster_of()
    with pytest.raises(UnavailableError) as caught:
        cluster.start()
    assert "decode-0 ended with exit code 3" in str(caught.value)
    assert "kv_memory: does not fit" in str(caught.value)
    assert (cluster.log_dir / "decode-0.log").exists()
    assert is_gone(cluster.child("prefill-0").pid)


def test_a_refused_setting_is_a_config_error(cluster_of: MakeCluster, behave: Any) -> None:
    behave(decode_0="exit2")
    with pytest.raises(ConfigError, match="kv_memory: does not fit"):
        cluster_of().start()


@pytest.mark.parametrize(("behaviour", "what"), [("mute", "does not serve"), ("unready", "no token yet")])
def test_what_is_not_ready_in_time_is_named(cluster_of: MakeCluster, behave: Any, behaviour: str, what: str) -> None:
    behave(router_0=behaviour)
    with pytest.raises(UnavailableError) as caught:
        cluster_of(start_timeout_s=1.0).start()
    assert "router-0" in str(caught.value)
    assert what in str(caught.value)


def test_a_process_that_ignores_sigterm_is_killed(
    cluster_of: MakeCluster, behave: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.launcher.STOP_GRACE_S", 0.3)
    behave(decode_0="stubborn")
    with cluster_of() as cluster:
        pid = cluster.child("decode-0").pid
    assert is_gone(pid)


def test_a_process_that_ends_later_is_told_once(cluster_of: MakeCluster) -> None:
    with cluster_of(prefill=2) as cluster:
        assert cluster.newly_ended() == []
        cluster.kill("prefill-0")
        (ended,) = cluster.newly_ended()
        assert (ended.name, ended.ending()) == ("prefill-0", "was ended by SIGKILL")
        assert cluster.newly_ended() == []
        assert cluster.missing_kind() is None
        cluster.kill("prefill-1")
        assert cluster.missing_kind() == "prefill"


def test_children_outlive_the_thread_that_started_them(cluster_of: MakeCluster) -> None:
    cluster = cluster_of()
    thread = threading.Thread(target=cluster.start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    alive = [cluster.child(worker.id).exit_code for worker in cluster.workers]
    cluster.close()
    assert alive == [None, None]


LAUNCHER = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests were started with
from common.config import EngineConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.launcher import Cluster
config = ClusterConfig(engine=EngineConfig(model=sys.argv[2]), grpc_port=0, http_port=0)
with Cluster(config, program=(sys.executable, sys.argv[1])) as cluster:
    print(*(worker.pid for worker in cluster.workers), "torch" in sys.modules, flush=True)
    if sys.argv[3] == "raise":
        raise ValueError
    time.sleep(60)
"""


@pytest.mark.parametrize("end", ["SIGKILL", "SIGINT", "raise"])
def test_no_orphans_however_the_launcher_ends(model: Path, end: str) -> None:
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, fake_service.__file__, str(model), end],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert launcher.stdout is not None
    *pids, torch_is_there = launcher.stdout.readline().split()
    if end != "raise":
        family = psutil.Process(launcher.pid).children(recursive=True)
        assert len(family) == 4  # with the router and the index server
        launcher.send_signal(signal.Signals[end])
        pids.extend(str(process.pid) for process in family)
    launcher.wait(20)
    launcher.stdout.close()
    assert torch_is_there == "False"
    assert all(is_gone(int(pid)) for pid in pids)
