"""A running router holds neither torch nor transformers."""

from __future__ import annotations

import json
import time
from pathlib import Path

from common.config import Role
from slipstream.client import Client
from slipstream.launcher import Cluster
from tests.support.small_cluster import worker_of_role
from tests.support.watched_program import modules_path

FORBIDDEN = ("torch", "transformers")


def loaded_modules(folder: Path, pid: int, after_s: float) -> list[str]:
    """What the process had imported some time after `after_s`."""
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        path = modules_path(folder, pid)
        if path.exists():
            told = json.loads(path.read_text())
            if told["time_s"] > after_s:
                return list(told["modules"])
        time.sleep(0.05)
    raise AssertionError(f"process {pid} wrote no module list")


def mapped_files(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_a_router_that_served_text_and_chat_holds_no_torch(small_cluster: Cluster, modules_folder: Path) -> None:
    with Client(small_cluster.grpc_addresses) as client:
        client.generate("The harbour", max_tokens=4, logprobs=2, stop=["xyz"])
        client.generate(messages=[{"role": "user", "content": "Hello"}], max_tokens=4)
    pid = small_cluster.child("router-0").pid
    modules = loaded_modules(modules_folder, pid, time.time())
    assert "router.main" in modules
    assert [name for name in modules if name.partition(".")[0] in FORBIDDEN] == []
    assert "libtorch" not in mapped_files(pid)


def test_the_check_would_see_torch(small_cluster: Cluster, modules_folder: Path) -> None:
    worker = worker_of_role(small_cluster, Role.DECODE)
    assert "torch" in loaded_modules(modules_folder, worker.pid, time.time())
    assert "libtorch" in mapped_files(worker.pid)
