from __future__ import annotations

import pytest

from slipstream.cores import CoreShare, divide_cores


def test_each_worker_owns_cores_when_there_are_enough() -> None:
    assert divide_cores([0, 1], 2) == [CoreShare(cores=(0,), num_threads=1), CoreShare(cores=(1,), num_threads=1)]


@pytest.mark.parametrize(("num_cores", "num_workers"), [(8, 3), (5, 5), (64, 7)])
def test_all_cores_are_given_once_and_evenly(num_cores: int, num_workers: int) -> None:
    shares = divide_cores(range(100, 100 + num_cores), num_workers)
    given = [core for share in shares for core in share.cores or ()]
    assert sorted(given) == list(range(100, 100 + num_cores))
    counts = [share.num_threads for share in shares]
    assert max(counts) - min(counts) <= 1


def test_too_few_cores_are_shared_with_one_thread_each() -> None:
    assert divide_cores([0, 1], 3) == [CoreShare(cores=None, num_threads=1)] * 3


def test_a_single_worker_has_them_all() -> None:
    assert divide_cores([4, 5], 1) == [CoreShare(cores=None, num_threads=2)]
