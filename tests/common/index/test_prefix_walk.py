from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from common.index.points import Tier, WorkerRef
from common.index.prefix_walk import NOBODY, Holders, holders_of, walk
from tests.support.valkey import worker_ref

WORKERS = [worker_ref(f"w{i}") for i in range(4)]
A, B = WORKERS[:2]

points_of_entries = st.lists(st.dictionaries(st.sampled_from(WORKERS), st.sampled_from(Tier)), max_size=12)


def holders(*workers: WorkerRef, tier: Tier = Tier.DEVICE) -> Holders:
    return holders_of(dict.fromkeys(workers, tier))


def test_depth_ends_at_the_first_gap() -> None:
    depths = walk([holders(A, B), holders(A, B), holders(A), NOBODY, holders(A, B)])
    assert {worker: depth.disk_points for worker, depth in depths.items()} == {A: 3, B: 2}


def test_tiers_count_cumulatively() -> None:
    points = [holders(A), holders(A, tier=Tier.HOST), holders(A, tier=Tier.DISK), holders(A, tier=Tier.SPECULATIVE)]
    depth = walk(points)[A]
    assert (depth.device_points, depth.host_points, depth.disk_points, depth.speculative_points) == (1, 2, 3, 4)


def test_unanswered_points_count_when_a_deeper_one_is_held() -> None:
    depths = walk([None, holders(A, B), None, holders(A), None])
    assert {worker: depth.disk_points for worker, depth in depths.items()} == {A: 4, B: 2}


def test_nothing_answered_is_no_depth() -> None:
    assert walk([None, None]) == {}
    assert walk([]) == {}


@given(points_of_entries)
def test_walk_equals_counting_worker_by_worker(entries: list[dict[WorkerRef, Tier]]) -> None:
    depths = walk([holders_of(point) for point in entries])
    for worker in WORKERS:
        for tier, name in zip(Tier, ("device_points", "host_points", "disk_points", "speculative_points"), strict=True):
            count = 0
            for point in entries:
                if point.get(worker, len(Tier)) > tier:
                    break
                count += 1
            assert (getattr(depths[worker], name) if worker in depths else 0) == count
