"""Blocks that outlive their sequence because a transfer still reads them."""

from __future__ import annotations

from common.engine.sequence import Sequence
from common.kv.block_table import BlockTable
from common.kv.manager import KVCacheManager
from common.request import RequestId


class LeaseTable:
    """Leases of legs that were to be handed over. Owner: the engine, one thread."""

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self._leases: dict[tuple[RequestId, int], list[tuple[tuple[int, ...], BlockTable]]] = {}

    def __len__(self) -> int:
        return sum(len(leases) for leases in self._leases.values())

    def add(self, sequence: Sequence) -> None:
        """Keeps the blocks of a sequence that has ended until `release`."""
        leg = sequence.leg
        self._leases.setdefault((leg.request_id, leg.attempt), []).append((leg.choice_indices, sequence.table))

    def release(self, request_id: RequestId, attempt: int, choice_indices: tuple[int, ...]) -> None:
        """Gives the blocks back. `choice_indices` are the leg's; empty: every leg of that attempt. Idempotent."""
        kept = []
        for lease in self._leases.pop((request_id, attempt), []):
            if choice_indices and lease[0] != choice_indices:
                kept.append(lease)
            else:
                self._kv.free(lease[1])
        if kept:
            self._leases[request_id, attempt] = kept
