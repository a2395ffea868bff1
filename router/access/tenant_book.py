"""The tenants that a router knows now: their file, read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from common.errors import ConfigError
from router.access.api_key import hash_key
from router.access.tenant import Tenant, read_tenants

logger = logging.getLogger(__name__)

WATCH_INTERVAL_S = 1.0


class TenantBook:
    """Owned by the event loop. A file that can't be read leaves what was known as it is."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError."""
        self._path = path
        self._state = _state_of(path)
        self._by_hash: Mapping[str, Tenant] = read_tenants(path)

    def find(self, key: str) -> Tenant | None:
        """Whose key this is."""
        # By its hash: how long that takes tells nothing of the keys that there are.
        return self._by_hash.get(hash_key(key))

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(WATCH_INTERVAL_S)
            await self._refresh()

    async def _refresh(self) -> None:
        state = await asyncio.to_thread(_state_of, self._path)
        if state == self._state:
            return
        self._state = state
        try:
            by_hash = await asyncio.to_thread(read_tenants, self._path)
        except ConfigError as error:
            logger.error("%s; the tenants stay as they were", error)
            return
        if not by_hash and self._by_hash:
            # Half of a save that is not atomic looks like this.
            logger.error("%s: holds no key; the tenants stay as they were: stop the router to lock out all", self._path)
            return
        self._by_hash = by_hash
        logger.info("%s: %d keys", self._path, len(by_hash))


def _state_of(path: Path) -> tuple[int, int, int] | None:
    """Changes with the file, also when another takes its place, as Kubernetes changes a mounted secret."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
