"""When a worker's legs should ask where their blocks go, by its reports and by what transfers took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from common.cost import StepTimes, map_in_s
from common.engine.results import BlocksComputed
from common.kv.spec import KVCacheSpec
from common.request import LegKey
from common.worker.engine_thread import StepReport

# Of no link in particular, until transfers have been measured.
ASSUMED_BYTES_PER_S = 1e9
# How much of the measured rate one further transfer is.
WEIGHT = 0.2
# Smaller transfers tell of latency, not of the rate.
MIN_MEASURED_BYTES = 2**20


class Due(NamedTuple):
    """A leg should ask in so many seconds, unless a later report says otherwise."""

    key: LegKey
    wait_s: float


@dataclass(slots=True)
class _Watched:
    """Until a leg has begun, `num_computed_tokens` are those that are expected to be cached."""

    num_tokens: int
    num_computed_tokens: int
    begun: bool = False


class MapTiming:
    """Owned by the event loop. `chunk_tokens` is what a step computes at most.

    A leg that is being computed is judged with each report, one that waits when the next step is to reach it.
    """

    def __init__(self, spec: KVCacheSpec, chunk_tokens: int) -> None:
        self._block_size = spec.block_size
        self._bytes_per_token = sum(group.bytes_per_block for group in spec.groups) / spec.block_size
        self._chunk_tokens = chunk_tokens
        self._bytes_per_s = ASSUMED_BYTES_PER_S
        self._watched: dict[LegKey, _Watched] = {}

    def watch(self, key: LegKey, num_tokens: int, num_expected_tokens: int) -> None:
        """A leg of so many tokens whose blocks have no place yet; so many of them are expected to be cached."""
        self._watched[key] = _Watched(num_tokens, min(num_expected_tokens, num_tokens - 1))

    def forget(self, key: LegKey) -> None:
        """It has asked, or ended. Idempotent."""
        self._watched.pop(key, None)

    def computed(self, key: LegKey, blocks: BlocksComputed) -> None:
        """So many blocks of a leg are computed, or were cached."""
        watched = self._watched.get(key)
        if watched is not None:
            num_tokens = (blocks.first_logical_block + len(blocks.block_ids)) * self._block_size
            watched.num_computed_tokens = min(num_tokens, watched.num_tokens)
            watched.begun = True

    def moved(self, num_bytes: int, seconds: float) -> None:
        """A transfer took so long."""
        if num_bytes >= MIN_MEASURED_BYTES and seconds > 0:
            self._bytes_per_s += WEIGHT * (num_bytes / seconds - self._bytes_per_s)

    def due(self, report: StepReport) -> list[Due]:
        """The legs that are computed now or with the next step, which begins with this report."""
        if not self._watched:
            return []
        times = report.load.step_times
        due = [Due(key, self._wait_s(watched, times)) for key, watched in self._watched.items() if watched.begun]
        for key in report.upcoming:
            waiting = self._watched.get(key)
            if waiting is not None and not waiting.begun:
                due.append(Due(key, self._wait_s(waiting, times)))
        return due

    def _wait_s(self, watched: _Watched, times: StepTimes) -> float:
        return map_in_s(
            num_tokens=watched.num_tokens,
            num_computed_tokens=watched.num_computed_tokens,
            chunk_tokens=self._chunk_tokens,
            times=times,
            token_transfer_s=self._bytes_per_token / self._bytes_per_s,
        )
