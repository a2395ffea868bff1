"""Where a worker has gone is known for a while."""

from __future__ import annotations

from dataclasses import replace

from common.config import Role
from common.request import WorkerId
from router.departed import MAX_REMEMBERED, REMEMBER_S, DepartedWorkers
from router.worker_info import WorkerInfo
from tests.support.scripted_worker import ScriptedWorker


def info(worker_id: str) -> WorkerInfo:
    return replace(WorkerInfo.from_wire(worker().registration()), worker_id=WorkerId(worker_id))


def worker() -> ScriptedWorker:
    return ScriptedWorker("w", Role.DECODE)


def test_the_removed_and_the_dead_are_kept_until_they_are_back() -> None:
    gone = DepartedWorkers()
    gone.add(info("a"), removed=True)
    gone.add(info("b"), removed=False)
    assert [(one.info.worker_id, one.removed) for one in gone.all()] == [("a", True), ("b", False)]
    gone.forget("a")
    gone.forget("never")
    assert [one.info.worker_id for one in gone.all()] == ["b"]


def test_one_that_goes_again_is_told_once() -> None:
    gone = DepartedWorkers()
    gone.add(info("a"), removed=True)
    gone.add(info("a"), removed=False)
    assert [one.removed for one in gone.all()] == [False]


def test_what_is_remembered_has_bounds() -> None:
    now_s = 0.0
    gone = DepartedWorkers(clock=lambda: now_s)
    for number in range(MAX_REMEMBERED + 5):
        gone.add(info(f"w{number}"), removed=True)
    assert len(gone.all()) == MAX_REMEMBERED
    assert gone.all()[-1].info.worker_id == f"w{MAX_REMEMBERED + 4}"
    now_s = REMEMBER_S
    assert gone.all() == []
