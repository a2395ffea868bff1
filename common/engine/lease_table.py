"""Blocks that outlive their sequence because a transfer reads them."""

from __future__ import annotations

from collections.abc import Iterator

from common.engine.sequence import Sequence
from common.kv.manager import KVCacheManager
from common.request import RequestId


class LeaseTable:
    """Leases of legs that were to be handed over, and of choices kept for a move. Owner: the engine, one thread."""

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self._leases: dict[tuple[RequestId, int], list[tuple[tuple[int, ...], Sequence]]] = {}

    def __len__(self) -> int:
        return sum(len(leases) for leases in self._leases.values())

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences, which have ended, whose blocks are kept."""
        for leases in self._leases.values():
            yield from (sequence for _, sequence in leases)

    def add(self, sequence: Sequence, choice_indices: tuple[int, ...]) -> None:
        """Keeps the blocks of a sequence that has ended until `release` with these choices, or with none."""
        leg = sequence.leg
        self._leases.setdefault((leg.request_id, leg.attempt), []).append((choice_indices, sequence))

    def release(self, request_id: RequestId, attempt: int, choice_indices: tuple[int, ...]) -> None:
        """Gives the blocks back. `choice_indices` are the lease's; empty: every lease of that attempt. Idempotent."""
        kept = []
        for lease in self._leases.pop((request_id, attempt), []):
            if choice_indices and lease[0] != choice_indices:
                kept.append(lease)
            else:
                self._kv.free(lease[1].table)
        if kept:
            self._leases[request_id, attempt] = kept
