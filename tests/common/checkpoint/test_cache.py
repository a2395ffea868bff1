"""A cached folder is whole or not there, and made by one process."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest

from common.checkpoint.cache import cache_folder, made_once


def fill(folder: Path) -> None:
    (folder / "file").write_text("whole")


def fill_slowly(folder: Path) -> None:
    with (folder.parent / "makers").open("a") as makers:
        makers.write("x")
    time.sleep(0.3)
    fill(folder)


def test_the_environment_names_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SLIPSTREAM_CACHE")
    assert cache_folder() == Path.home() / ".cache" / "slipstream"


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    folder = made_once(tmp_path / "deep" / "model", fill)
    (folder / "file").write_text("kept")
    assert (made_once(folder, fill) / "file").read_text() == "kept"


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        made_once(tmp_path / "model", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]
    assert (made_once(tmp_path / "model", fill) / "file").read_text() == "whole"


def test_the_remains_of_a_killed_process_are_cleared(tmp_path: Path) -> None:
    remains = tmp_path / "model.making-abc"
    remains.mkdir()
    made_once(tmp_path / "model", fill)
    assert not remains.exists()


def test_of_many_processes_one_makes_it(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=made_once, args=(tmp_path / "model", fill_slowly)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(20)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "makers").read_text() == "x"
    assert (tmp_path / "model" / "file").read_text() == "whole"
