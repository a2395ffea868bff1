"""Limits of control groups, as files in a folder of our own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from common.model.free_memory import cgroup_free_bytes, free_memory


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own"
    path.write_text("0::/slice/service\n")
    return path


def limit(folder: Path, maximum: str, current: int, inactive_file: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{maximum}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive_file}\n")


def test_every_group_around_the_process_counts(tmp_path: Path, own: Path) -> None:
    root = tmp_path / "cgroup"
    limit(root / "slice" / "service", "max", 10)
    limit(root / "slice", "1000", 300)
    limit(root, "5000", 1000)
    assert cgroup_free_bytes(root, own) == [700, 4000]


def test_the_page_cache_gives_way(tmp_path: Path, own: Path) -> None:
    limit(tmp_path / "cgroup", "1000", 900, inactive_file=600)
    assert cgroup_free_bytes(tmp_path / "cgroup", own) == [700]


def test_more_used_than_allowed_is_nothing_free(tmp_path: Path, own: Path) -> None:
    limit(tmp_path / "cgroup", "1000", 1200)
    assert cgroup_free_bytes(tmp_path / "cgroup", own) == [0]


def test_no_control_groups_no_limits(tmp_path: Path, own: Path) -> None:
    assert cgroup_free_bytes(tmp_path / "nowhere", own) == []
    assert cgroup_free_bytes(tmp_path, tmp_path / "nowhere") == []


def test_the_machine_has_some_free() -> None:
    assert free_memory(torch.device("cpu")) > 2**20
