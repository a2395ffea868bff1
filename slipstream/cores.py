"""How the cores of one machine are divided among its workers, and what their environment must say.

Threads of two workers on one core cost a decode step a factor of 4 to 7 beside a prefill, so each worker owns its
cores when there are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WORKER_ENVIRONMENT = {
    # Unbounded spinning of libgomp costs 4 to 40 times on shared cores, no spinning costs at each of the about 200
    # parallel regions of a step. Read when torch is loaded.
    "GOMP_SPINCOUNT": "10000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreShare:
    """The cores of one worker. `cores` is None when it shares all of them with the others."""

    cores: tuple[int, ...] | None
    num_threads: int


def divide_cores(cores: Sequence[int], num_workers: int) -> list[CoreShare]:
    """One share per worker, sizes differing by one at most; without enough cores, one thread each anywhere."""
    if len(cores) < num_workers:
        return [CoreShare(cores=None, num_threads=1)] * num_workers
    if num_workers == 1:
        return [CoreShare(cores=None, num_threads=len(cores))]
    shares = []
    for index in range(num_workers):
        own = tuple(cores[index * len(cores) // num_workers : (index + 1) * len(cores) // num_workers])
        shares.append(CoreShare(cores=own, num_threads=len(own)))
    return shares
