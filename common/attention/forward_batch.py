"""What one step computes, flattened: the only thing that a forward pass is told beside the KV cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardBatch:
    """Tokens of several requests, one after the other, request by request.

    Request r owns the rows query_start_loc[r] to query_start_loc[r + 1]. Its rows are the last ones of its
    sequence so far: they sit at positions seq_lens[r] - query_len to seq_lens[r] - 1. All index tensors are on the
    model's device; the two `_cpu` tuples carry the same numbers for a backend that plans on the host.
    """

    token_ids: torch.Tensor  # [num_tokens] int64
    positions: torch.Tensor  # [num_tokens] int64
    slot_mapping: torch.Tensor  # [num_tokens] int64: block_id * block_size + offset, where the token's KV goes
    block_tables: torch.Tensor  # [num_requests, max_blocks] int32; entries past a request's last block are any block
    query_start_loc: torch.Tensor  # [num_requests + 1] int32
    seq_lens: torch.Tensor  # [num_requests] int32: tokens in the KV cache after this step
    logits_indices: torch.Tensor  # [num_logits] int64: rows of the hidden states whose logits are wanted
    query_start_loc_cpu: tuple[int, ...]  # as query_start_loc
    seq_lens_cpu: tuple[int, ...]  # as seq_lens

    @property
    def num_tokens(self) -> int:
        return self.query_start_loc_cpu[-1]

    @property
    def num_requests(self) -> int:
        return len(self.seq_lens_cpu)
