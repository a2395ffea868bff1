"""Housekeeping of the index, done by everybody a little: the server itself grants each slice.

Ends speculative entries, retires workers that have fallen silent, and removes the entries of retired slots by
their reverse list, in slices, so that no lookup waits for a dead worker's hundred thousand points.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from dataclasses import dataclass

from common.index.client import IndexClient, IndexUnavailableError
from common.index.points import IndexSpace, ShardKeys

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweeperConfig:
    """Pace of the housekeeping; the server holds all sweepers together to it."""

    interval_s: float = 0.25
    dead_after_s: float = 30.0  # seconds without a heartbeat; a blip must not wipe a warm worker
    slice_points: int = 256
    slice_interval_s: float = 0.005  # 51,200 points/s and shard at most
    num_busy: int = 8  # sweepers that go at `interval_s`; of more, each goes the more slowly


class IndexSweeper:
    """Owner: a publisher or a lookup; `run()` lives until it is cancelled."""

    def __init__(self, client: IndexClient, space: IndexSpace, config: SweeperConfig | None = None) -> None:
        self._client = client
        self._shards = space.shards()
        self._config = config or SweeperConfig()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for keys in self._shards:
                group.create_task(self._keep_sweeping(keys))

    async def _keep_sweeping(self, keys: ShardKeys) -> None:
        pause_s = self._config.interval_s
        while True:
            await asyncio.sleep(pause_s * random.uniform(0.75, 1.25))
            try:
                pause_s = self._pause_s(await self.sweep(keys))
            except IndexUnavailableError as error:
                logger.debug("index housekeeping waits: %s", error)
                await asyncio.sleep(1.0)

    def _pause_s(self, num_workers: int) -> float:
        """So that a thousand workers ask little more often than ten, and a tenth of them left alive is enough."""
        config = self._config
        return min(config.interval_s * max(1.25, num_workers / config.num_busy), config.dead_after_s / 8)

    async def sweep(self, keys: ShardKeys) -> int:
        """One round on one shard, unless another sweeper had one just now. Returns the number of live workers.

        Raises IndexUnavailableError.
        """
        config = self._config
        num_workers, *retired = await self._client.call(
            "slipstream_sweep_v2",
            keys.all(),
            round(config.dead_after_s * 1000),
            round(config.interval_s * 1000),
            secrets.token_bytes(8),
        )
        for slot in retired:
            if not await self._clear(keys, int(slot)):
                break
        return int(num_workers)

    async def _clear(self, keys: ShardKeys, slot: int) -> bool:
        """Slice by slice. False when another sweeper has taken the next slice."""
        interval_ms = round(self._config.slice_interval_s * 1000)
        while True:
            left = await self._client.call(
                "slipstream_clear_v2", keys.all(slot), slot, self._config.slice_points, interval_ms
            )
            if left < 0:
                return False
            await asyncio.sleep(self._config.slice_interval_s)
            if left == 0:
                return True
