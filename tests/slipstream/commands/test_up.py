from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from common.config import EngineConfig, IndexConfig
from slipstream.cluster_config import ClusterConfig
from slipstream.commands.up import serve_until_nothing_is_left
from slipstream.launcher import Cluster
from tests.support import fake_service


def test_a_lost_process_is_told_and_the_last_of_its_kind_ends_it(
    model: Path, index_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ClusterConfig(
        engine=EngineConfig(model=str(model)),
        index=IndexConfig(index_url=index_url),
        prefill=2,
        grpc_port=0,
        http_port=0,
    )
    with Cluster(config, program=(sys.executable, fake_service.__file__)) as cluster:
        cluster.kill("prefill-0")
        cluster.kill("prefill-1")
        assert serve_until_nothing_is_left(cluster) == 1
    shown = capsys.readouterr().err
    assert "prefill-0 was ended by SIGKILL" in shown
    assert "prefill-0 has begun" in shown
    assert "no prefill process is left" in shown


@pytest.mark.parametrize(
    "command", [("up", "--grpc-port=0", "--http-port=0"), ("generate", "--local", "Hi")], ids=["up", "generate"]
)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_what_was_started_is_stopped_when_the_start_is_interrupted(
    model: Path, command: tuple[str, ...], signum: signal.Signals
) -> None:
    # A folder without weights: workers end by themselves unless Ctrl-C is faster; nothing may be left either way.
    line = [sys.executable, "-m", "slipstream", *command, "--model", str(model)]
    up = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert up.stderr is not None
    while "index" not in up.stderr.readline():
        pass
    family = psutil.Process(up.pid).children(recursive=True)
    up.send_signal(signum)
    _, shown = up.communicate(timeout=30)
    assert up.returncode in (1, 2, 130)
    assert "Traceback" not in shown.partition("the end of its log")[0]
    assert not any(process.is_running() for process in family)
