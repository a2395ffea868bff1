"""Log probabilities under the raw logits, before penalties, temperature and truncation."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from common.request import TokenLogprob, TopLogprob


def token_logprobs(
    logits: torch.Tensor,  # [num_rows, vocab_size] float32
    token_ids: Sequence[int],
    num_top: Sequence[int],
) -> list[TokenLogprob]:
    """One per row: its token's logprob and rank, and its `num_top` most likely tokens, ties by token id."""
    chosen = torch.tensor(token_ids, device=logits.device)[:, None]  # [num_rows, 1]
    normalisers = logits.logsumexp(dim=-1, keepdim=True)  # [num_rows, 1]
    chosen_logits = logits.gather(1, chosen)  # [num_rows, 1]
    ranks = (logits > chosen_logits).sum(dim=-1).tolist()
    logprobs = (chosen_logits - normalisers)[:, 0].tolist()
    tops = _top_logprobs(logits, normalisers, num_top)
    return [
        TokenLogprob(token_id=token_id, logprob=logprob, rank=rank + 1, top=top)
        for token_id, logprob, rank, top in zip(token_ids, logprobs, ranks, tops, strict=True)
    ]


def _top_logprobs(
    logits: torch.Tensor, normalisers: torch.Tensor, num_top: Sequence[int]
) -> list[tuple[TopLogprob, ...]]:
    most = max(num_top, default=0)
    if most == 0:
        return [()] * len(num_top)
    values, token_ids = logits.topk(min(most, logits.shape[-1]), dim=-1)
    rows = zip((values - normalisers).tolist(), token_ids.tolist(), num_top, strict=True)
    return [
        tuple(
            TopLogprob(token_id=token_id, logprob=logprob)
            for logprob, token_id in sorted(zip(row_logprobs, row_ids, strict=True), key=lambda x: (-x[0], x[1]))[
                :wanted
            ]
        )
        for row_logprobs, row_ids, wanted in rows
    ]
