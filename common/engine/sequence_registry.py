"""Every sequence of an engine by request, and by deadline."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator
from itertools import count

from common.engine.sequence import Sequence, SequenceState
from common.request import RequestId


class SequenceRegistry:
    """Sequences that have not ended. Owner: the engine, one thread."""

    def __init__(self) -> None:
        self._by_request: dict[RequestId, list[Sequence]] = {}
        self._deadlines: list[tuple[float, int, Sequence]] = []
        self._order = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Sequence]:
        for sequences in self._by_request.values():
            yield from sequences

    def add(self, sequence: Sequence) -> None:
        self._by_request.setdefault(sequence.leg.request_id, []).append(sequence)
        self._size += 1
        if sequence.leg.deadline_s is not None:
            heapq.heappush(self._deadlines, (sequence.leg.deadline_s, next(self._order), sequence))

    def remove(self, sequence: Sequence) -> None:
        sequences = self._by_request[sequence.leg.request_id]
        sequences.remove(sequence)
        self._size -= 1
        if not sequences:
            del self._by_request[sequence.leg.request_id]

    def find(self, request_id: RequestId, choice_indices: Collection[int] = ()) -> list[Sequence]:
        """Sequences of a request that carry any of these choices; all of the request's when none are named."""
        sequences = self._by_request.get(request_id, [])
        if not choice_indices:
            return list(sequences)
        return [sequence for sequence in sequences if not set(sequence.choice_indices).isdisjoint(choice_indices)]

    def pop_expired(self, now: float) -> list[Sequence]:
        """Sequences whose deadline has passed; each is told once."""
        expired = []
        while self._deadlines and self._deadlines[0][0] <= now:
            sequence = heapq.heappop(self._deadlines)[2]
            if sequence.state is not SequenceState.ENDED:
                expired.append(sequence)
        return expired
