"""What a worker has moved since it started."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class TransferCounters:
    """Owned by the event loop; counters only rise. KV payload, without headers; by transport where it says so."""

    sent_bytes: int = 0
    sent_blocks: int = 0
    received_bytes: int = 0
    received_blocks: int = 0
    sent_bytes_by_transport: Counter[str] = field(default_factory=Counter)
    received_bytes_by_transport: Counter[str] = field(default_factory=Counter)
    fallbacks: Counter[str] = field(default_factory=Counter)  # requests that a transport failed: gRPC carried them
