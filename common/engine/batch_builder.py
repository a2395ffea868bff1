"""Flattens a scheduled step into a ForwardBatch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from common.attention.forward_batch import ForwardBatch
from common.engine.scheduler_output import ScheduledSequence


class BatchBuilder:
    """Numpy on the host, one copy per tensor to the device; no work per token in Python."""

    def __init__(self, *, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._device = device

    def build(self, scheduled: Sequence[ScheduledSequence]) -> ForwardBatch:
        """Logits are wanted of the last row of each sequence that samples."""
        if all(entry.num_tokens == 1 for entry in scheduled):
            return self._build_single(scheduled)
        num_requests = len(scheduled)
        query_lens = np.array([entry.num_tokens for entry in scheduled], dtype=np.int64)
        starts = np.array([entry.start for entry in scheduled], dtype=np.int64)
        query_start_loc = np.zeros(num_requests + 1, dtype=np.int64)
        np.cumsum(query_lens, out=query_start_loc[1:])
        num_tokens = int(query_start_loc[-1])
        token_ids = np.empty(num_tokens, dtype=np.int64)
        block_tables = np.zeros((num_requests, max(e.sequence.table.num_blocks for e in scheduled)), dtype=np.int32)
        locations: list[int] = query_start_loc.tolist()
        for row, entry in enumerate(scheduled):
            sequence = entry.sequence
            tokens = sequence.token_ids[entry.start : entry.start + entry.num_tokens]
            token_ids[locations[row] : locations[row + 1]] = tokens
            block_tables[row, : sequence.table.num_blocks] = sequence.table.block_ids
        positions = np.arange(num_tokens) + np.repeat(starts - query_start_loc[:-1], query_lens)
        rows = np.repeat(np.arange(num_requests), query_lens)
        blocks = block_tables[rows, positions // self._block_size].astype(np.int64)
        slot_mapping = blocks * self._block_size + positions % self._block_size
        seq_lens = starts + query_lens
        logits_indices = [locations[row + 1] - 1 for row, entry in enumerate(scheduled) if entry.samples]
        return ForwardBatch(
            token_ids=self._tensor(token_ids),
            positions=self._tensor(positions),
            slot_mapping=self._tensor(slot_mapping),
            block_tables=self._tensor(block_tables),
            query_start_loc=self._tensor(query_start_loc.astype(np.int32)),
            seq_lens=self._tensor(seq_lens.astype(np.int32)),
            logits_indices=self._tensor(np.array(logits_indices, dtype=np.int64)),
            query_start_loc_cpu=tuple(locations),
            seq_lens_cpu=tuple(seq_lens.tolist()),
        )

    def _build_single(self, scheduled: Sequence[ScheduledSequence]) -> ForwardBatch:
        """One token each, as in nearly every step of a decode worker: half the time of the general way."""
        num_requests = len(scheduled)
        starts = [entry.start for entry in scheduled]
        tables = [entry.sequence.table.block_ids for entry in scheduled]
        block_tables = np.zeros((num_requests, max(map(len, tables))), dtype=np.int32)
        for row, table in enumerate(tables):
            block_tables[row, : len(table)] = table
        size = self._block_size
        slots = [int(table[start // size]) * size + start % size for table, start in zip(tables, starts, strict=True)]
        token_ids = [entry.sequence.token_ids[entry.start] for entry in scheduled]
        seq_lens = [start + 1 for start in starts]
        sampling = [row for row, entry in enumerate(scheduled) if entry.samples]
        return ForwardBatch(
            token_ids=self._tensor(np.array(token_ids, dtype=np.int64)),
            positions=self._tensor(np.array(starts, dtype=np.int64)),
            slot_mapping=self._tensor(np.array(slots, dtype=np.int64)),
            block_tables=self._tensor(block_tables),
            query_start_loc=self._tensor(np.arange(num_requests + 1, dtype=np.int32)),
            seq_lens=self._tensor(np.array(seq_lens, dtype=np.int32)),
            logits_indices=self._tensor(np.array(sampling, dtype=np.int64)),
            query_start_loc_cpu=tuple(range(num_requests + 1)),
            seq_lens_cpu=tuple(seq_lens),
        )

    def _tensor(self, array: npt.NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self._device.type == "cpu" else tensor.to(self._device)
