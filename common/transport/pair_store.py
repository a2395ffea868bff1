"""The store that a group of two is formed over: each end's entries go to the other through the Pair call.

No port is opened for it, unlike torch's own TCPStore, and whoever may call the worker's service may use it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist

from common.errors import UnavailableError

MAX_ENTRIES = 64
MAX_ENTRY_BYTES = 64 * 1024


class PairStore(dist.Store):  # type: ignore[name-defined,misc]
    """A torch Store of which torch uses set, get, wait and check here. `send` is called in any thread."""

    def __init__(self, send: Callable[[str, bytes], None], timeout_s: float) -> None:
        super().__init__()
        self._send = send
        self._timeout_s = timeout_s
        self._entries: dict[str, bytes] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, key: str, value: bytes) -> None:
        """What the other end has set. Raises UnavailableError when it sets more than a group needs."""
        if len(self._entries) >= MAX_ENTRIES or len(value) > MAX_ENTRY_BYTES:
            raise UnavailableError("the peer writes too much into the store")
        with self._changed:
            self._entries[key] = value
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will come: who waits is told so."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        with self._changed:
            self._entries[key] = data
            self._changed.notify_all()
        self._send(key, data)

    def get(self, key: str) -> bytes:
        self.wait([key])
        with self._changed:
            return self._entries[key]

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = self._timeout_s if timeout is None else min(timeout.total_seconds(), self._timeout_s)

        def there() -> bool:
            return self._closed or all(key in self._entries for key in keys)

        with self._changed:
            if not self._changed.wait_for(there, seconds) or self._closed:
                raise TimeoutError(f"the peer did not set {keys} within {seconds:g} s")

    def check(self, keys: list[str]) -> bool:
        with self._changed:
            return all(key in self._entries for key in keys)
