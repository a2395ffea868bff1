"""When a peer that should speak all the time is taken for lost: the same rule at both ends of a stream."""

from __future__ import annotations

import asyncio
import time

# A peer speaks at least so often, and more often under a short lease.
MAX_INTERVAL_S = 1.0
INTERVALS_PER_LEASE = 5
# Of the lease: a peer that was silent for so much of it gets nothing new, one that was for all of it is lost.
DOUBTFUL_SHARE = 0.5
MIN_DOUBTFUL_INTERVALS = 2.5
# How often one looks at the clock.
LOOKS_PER_LEASE = 10


def speaking_interval_s(lease_s: float) -> float:
    """Seconds between two words of somebody who has nothing to say."""
    return min(MAX_INTERVAL_S, lease_s / INTERVALS_PER_LEASE)


class Silence:
    """How long a peer has said nothing. A process that hangs, or a machine that is cut off, leaves its connection open:
    only its silence tells."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self.look_interval_s = min(0.25, lease_s / LOOKS_PER_LEASE)
        self._doubtful_s = min(MIN_DOUBTFUL_INTERVALS * speaking_interval_s(lease_s), DOUBTFUL_SHARE * lease_s)
        self._heard_s = time.monotonic()

    def hear(self) -> None:
        """It has said something."""
        self._heard_s = time.monotonic()

    @property
    def is_doubtful(self) -> bool:
        """Give it nothing new."""
        return time.monotonic() - self._heard_s > self._doubtful_s

    @property
    def is_lost(self) -> bool:
        """Give up what it had."""
        return time.monotonic() - self._heard_s > self.lease_s

    async def wait_lost(self) -> None:
        """Returns when it is lost."""
        while (left_s := self._heard_s + self.lease_s - time.monotonic()) > 0:  # noqa: ASYNC110 (a clock, no event)
            await asyncio.sleep(left_s)
