"""Blocks that outlive their sequence because a transfer still reads them."""

from __future__ import annotations

from collections.abc import Iterator

from common.engine.sequence import Sequence
from common.kv.manager import KVCacheManager
from common.request import RequestId


class LeaseTable:
    """Leases of legs that were to be handed over. Owner: the engine, one thread."""

    def __init__(self, kv: KVCacheManager) -> None:
        self._kv = kv
        self._leases: dict[tuple[RequestId, int], list[Sequence]] = {}

    def __len__(self) -> int:
        return sum(len(leases) for leases in self._leases.values())

    def __iter__(self) -> Iterator[Sequence]:
        """The sequences, which have ended, whose blocks are kept."""
        for leases in self._leases.values():
            yield from leases

    def add(self, sequence: Sequence) -> None:
        """Keeps the blocks of a sequence that has ended until `release`."""
        leg = sequence.leg
        self._leases.setdefault((leg.request_id, leg.attempt), []).append(sequence)

    def release(self, request_id: RequestId, attempt: int, choice_indices: tuple[int, ...]) -> None:
        """Gives the blocks back. `choice_indices` are the leg's; empty: every leg of that attempt. Idempotent."""
        kept = []
        for sequence in self._leases.pop((request_id, attempt), []):
            if choice_indices and sequence.leg.choice_indices != choice_indices:
                kept.append(sequence)
            else:
                self._kv.free(sequence.table)
        if kept:
            self._leases[request_id, attempt] = kept
