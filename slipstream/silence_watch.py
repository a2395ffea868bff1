"""Ends the calls of a blocking client on which nothing comes: its own thread can only wait for the next message."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any


class WatchedCall:
    """A streaming call. `silent` tells whether the watch has ended it; only waiting for a message counts."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.silent = False
        self._waits_since_s: float | None = None  # monotonic

    def __iter__(self) -> Iterator[Any]:
        messages = iter(self.call)
        while True:
            self._waits_since_s = time.monotonic()
            try:
                message = next(messages)
            except StopIteration:
                return
            finally:
                self._waits_since_s = None
            yield message

    def end_if_silent(self, silence_s: float) -> None:
        since_s = self._waits_since_s
        if since_s is not None and time.monotonic() - since_s > silence_s:
            self.silent = True
            self.call.cancel()


class SilenceWatch:
    """One thread for all calls of a client, while there are any."""

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._calls: set[WatchedCall] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, call: Any) -> WatchedCall:
        watched = WatchedCall(call)
        with self._changed:
            self._calls.add(watched)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="silence-watch", daemon=True)
                self._thread.start()
            self._changed.notify()
        return watched

    def remove(self, watched: WatchedCall) -> None:
        with self._changed:
            self._calls.discard(watched)

    def close(self) -> None:
        """Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._calls and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                calls = list(self._calls)
            for watched in calls:
                watched.end_if_silent(self._silence_s)
            time.sleep(min(0.25, self._silence_s / 10))
