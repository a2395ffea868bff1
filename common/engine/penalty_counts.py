"""Which tokens a sequence holds, and how often it generated them: what the penalties need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

INITIAL_CAPACITY = 64


class PenaltyCounts:
    """Distinct tokens of prompt and outputs, with the number of occurrences among the outputs.

    Recomputed from token ids wherever a sequence goes, never serialised; one addition per new token.
    """

    __slots__ = ("_counts", "_ids", "_size", "_slots")

    def __init__(self, prompt_token_ids: npt.NDArray[np.uint32], output_token_ids: npt.NDArray[np.uint32]) -> None:
        distinct = np.unique(prompt_token_ids).astype(np.int64)
        self._size = len(distinct)
        self._ids = np.zeros(self._size + INITIAL_CAPACITY, dtype=np.int64)
        self._ids[: self._size] = distinct
        self._counts = np.zeros(self._size + INITIAL_CAPACITY, dtype=np.int32)
        self._slots = {token_id: slot for slot, token_id in enumerate(distinct.tolist())}
        for token_id in output_token_ids.tolist():
            self.add(token_id)

    @property
    def token_ids(self) -> npt.NDArray[np.int64]:
        """[num_distinct] token ids of prompt and outputs."""
        return self._ids[: self._size]

    @property
    def output_counts(self) -> npt.NDArray[np.int32]:
        """[num_distinct] occurrences among the outputs."""
        return self._counts[: self._size]

    def add(self, token_id: int) -> None:
        """Counts one more output token."""
        slot = self._slots.get(token_id)
        if slot is None:
            slot = self._size
            if slot == len(self._ids):
                self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[slot] = token_id
            self._slots[token_id] = slot
            self._size += 1
        self._counts[slot] += 1
