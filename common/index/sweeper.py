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
        while True:
            await asyncio.sleep(self._config.interval_s * random.uniform(1.0, 1.5))
            try:
                await self.sweep(keys)
            except IndexUnavailableError as error:
                logger.debug("index housekeeping waits: %s", error)
                await asyncio.sleep(1.0)

    async def sweep(self, keys: ShardKeys) -> None:
        """One round on one shard, unless another sweeper had one just now. Raises IndexUnavailableError."""
        config = self._config
        retired = await self._client.call(
            "slipstream_sweep_v1",
            keys.all(),
            round(config.dead_after_s * 1000),
            round(config.interval_s * 1000),
            secrets.token_bytes(8),
        )
        for slot in retired:
            if not await self._clear(keys, int(slot)):
                return

    async def _clear(self, keys: ShardKeys, slot: int) -> bool:
        """Slice by slice. False when another sweeper has taken the next slice."""
        interval_ms = round(self._config.slice_interval_s * 1000)
        while True:
            left = await self._client.call(
                "slipstream_clear_v1", keys.all(slot), slot, self._config.slice_points, interval_ms
            )
            if left < 0:
                return False
            await asyncio.sleep(self._config.slice_interval_s)
            if left == 0:
                return True
