"""What a worker has moved since it started."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransferCounters:
    """Owned by the event loop; counters only rise. KV payload, without headers."""

    sent_bytes: int = 0
    sent_blocks: int = 0
    received_bytes: int = 0
    received_blocks: int = 0
