"""Which of a worker's legs should ask now where their blocks go, by its reports and by what transfers took."""

from __future__ import annotations

from dataclasses import dataclass

from common.cost import StepTimes, is_time_to_map
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


@dataclass(slots=True)
class _Watched:
    num_tokens: int
    num_computed_tokens: int = 0


class MapTiming:
    """Owned by the event loop. `chunk_tokens` is what a step computes at most.

    A leg that is being computed is looked at with each report, one that waits when the next step is to reach it.
    """

    def __init__(self, spec: KVCacheSpec, chunk_tokens: int) -> None:
        self._block_size = spec.block_size
        self._bytes_per_token = sum(group.bytes_per_block for group in spec.groups) / spec.block_size
        self._chunk_tokens = chunk_tokens
        self._bytes_per_s = ASSUMED_BYTES_PER_S
        self._watched: dict[LegKey, _Watched] = {}

    def watch(self, key: LegKey, num_tokens: int) -> None:
        """A leg of so many tokens whose blocks have no place yet."""
        self._watched[key] = _Watched(num_tokens)

    def forget(self, key: LegKey) -> None:
        """Idempotent."""
        self._watched.pop(key, None)

    def computed(self, key: LegKey, blocks: BlocksComputed) -> None:
        """So many blocks of a leg are computed, or were cached."""
        watched = self._watched.get(key)
        if watched is not None:
            num_tokens = (blocks.first_logical_block + len(blocks.block_ids)) * self._block_size
            watched.num_computed_tokens = min(num_tokens, watched.num_tokens)

    def moved(self, num_bytes: int, seconds: float) -> None:
        """A transfer took so long."""
        if num_bytes >= MIN_MEASURED_BYTES and seconds > 0:
            self._bytes_per_s += WEIGHT * (num_bytes / seconds - self._bytes_per_s)

    def due(self, report: StepReport) -> list[LegKey]:
        """The legs whose places should be known now. Each is told once."""
        if not self._watched:
            return []
        due = [
            key
            for key, watched in self._watched.items()
            if watched.num_computed_tokens and self._is_due(watched, report.load.step_times)
        ]
        due += [
            key
            for key in report.upcoming
            if (waiting := self._watched.get(key)) is not None
            and not waiting.num_computed_tokens
            and self._is_due(waiting, report.load.step_times)
        ]
        for key in due:
            del self._watched[key]
        return due

    def _is_due(self, watched: _Watched, times: StepTimes) -> bool:
        return is_time_to_map(
            num_tokens=watched.num_tokens,
            num_computed_tokens=watched.num_computed_tokens,
            chunk_tokens=self._chunk_tokens,
            times=times,
            transfer_s=watched.num_tokens * self._bytes_per_token / self._bytes_per_s,
        )
